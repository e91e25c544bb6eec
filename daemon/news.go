package daemon

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"

	"knoot.dev/knoot/gitlog"
)

// NewsKind says what news is about.
type NewsKind string

// What happened to a session, in the order in which it is told.
const (
	NewsFreed     NewsKind = "freed"     // a file that it was denied is free
	NewsTurn      NewsKind = "turn"      // it is its turn in the queue of a hub that it was denied
	NewsTaken     NewsKind = "taken"     // a person took a file that it held
	NewsChanged   NewsKind = "changed"   // a file that it read was changed
	NewsRemoved   NewsKind = "removed"   // a file that it read was removed
	NewsCollision NewsKind = "collision" // a file that it created, another session created too
	NewsUngated   NewsKind = "ungated"   // a file that it holds was written by somebody who did not hold it
	NewsCrossed   NewsKind = "crossed"   // it wrote a file that somebody else holds
	NewsMoved     NewsKind = "moved"     // its claim ended: on the branch that it moved to somebody else holds the file
	NewsJoined    NewsKind = "joined"    // a session that is at a file which it holds moved to its branch
	NewsDuplicate NewsKind = "duplicate" // another session seems to do the same
	NewsMail      NewsKind = "mail"      // a message for it
	NewsStash     NewsKind = "stash"     // it uses the stash, and others work in other worktrees of the clone
	NewsSwept     NewsKind = "swept"     // a git command of it (Text) reaches what another changed, and the setting says that it goes on
	// Notes: told before a write of that file, and at no other time.
	NewsLeft    NewsKind = "left"    // a session left uncommitted changes in it
	NewsOverlap NewsKind = "overlap" // it is being changed on another branch, too
	NewsHeld    NewsKind = "held"    // somebody else is at it, and the write goes on: a person, or the setting says so
	NewsNoted   NewsKind = "noted"   // somebody else wrote it lately; it is never claimed, or this session claims nothing
)

var newsOrder = []NewsKind{NewsFreed, NewsTurn, NewsTaken, NewsChanged, NewsRemoved, NewsCollision, NewsUngated, NewsCrossed, NewsMoved,
	NewsJoined, NewsDuplicate, NewsMail, NewsSwept, NewsStash, NewsHeld, NewsLeft, NewsOverlap, NewsNoted}

// note says whether news of a kind waits for a write of its file.
func (k NewsKind) note() bool {
	return k == NewsHeld || k == NewsLeft || k == NewsOverlap || k == NewsNoted
}

// NewsPlace says where a change is, as seen from whoever is told.
type NewsPlace string

const (
	InYourTree NewsPlace = ""       // in the files of its worktree
	Pushed     NewsPlace = "pushed" // on the branch at the host, and not in its worktree
	Elsewhere  NewsPlace = "away"   // in another worktree and nowhere else
	// OtherMachine: on another machine, when it was heard of.
	OtherMachine NewsPlace = "machine"
)

// News is something that happened and that a context is told once. Its strings may hold anything.
type News struct {
	// Key names what happened: news with a key that the context was told is not told again.
	Key  string        `json:"key"`
	Kind NewsKind      `json:"kind"`
	At   gitlog.Millis `json:"at"`
	// Root is the worktree of Path for whoever is told; "": told wherever it is.
	Root string `json:"root,omitempty"`
	Path string `json:"path,omitempty"`
	// By is who did it, or whose it is.
	By Peer `json:"by,omitzero"`
	// Place is of NewsChanged and NewsRemoved; Commit (hex) has the change where it is Pushed.
	Place  NewsPlace `json:"place,omitempty"`
	Commit string    `json:"commit,omitempty"`
	From   string    `json:"from,omitempty"`   // the worktree in which it was done, where it is Elsewhere
	Branch string    `json:"branch,omitempty"` // the other session's, full ref name; "" detached or of no matter
	Text   string    `json:"text,omitempty"`   // a message, an intent, how a merge would end
	Urgent bool      `json:"urgent,omitempty"` // of NewsMail
	// Unsure says that it happened while a command line ran, and that it may have been somebody else.
	Unsure bool `json:"unsure,omitempty"`
	// Denied says that it happened though the write was refused to a session: by that one, it seems.
	Denied bool `json:"denied,omitempty"`
	// Turn is the turn in which the file was denied, of NewsFreed and NewsTurn.
	Turn int `json:"turn,omitempty"`
	// Until is when a hub that is kept for the session is offered to the next.
	Until gitlog.Millis `json:"until,omitempty"`
}

func (n *News) digest() LineDigest { return digestOf("news", n.Key) }

// maxNews is how many lines of news are said one by one.
const maxNews = 5

// newsItems are what happened to this session. Notes come with the write that they are about alone.
func (c *composer) newsItems() []item {
	var found []*News
	for i := range c.in.News {
		n := &c.in.News[i]
		if c.told.has(n.digest()) || n.Kind.note() && (c.in.Event != EventPreTool || !slices.Contains(c.in.Writes, n.Path)) {
			continue
		}
		found = append(found, n)
	}
	slices.SortStableFunc(found, func(a, b *News) int {
		return cmp.Or(cmp.Compare(slices.Index(newsOrder, a.Kind), slices.Index(newsOrder, b.Kind)), cmp.Compare(a.At, b.At))
	})
	if len(found) > maxNews {
		return []item{c.numbered(func(nth int) string { return manyNewsLine(found, nth) }, found...)}
	}
	items := make([]item, 0, len(found))
	for _, n := range found {
		items = append(items, c.numbered(func(nth int) string { return newsLine(n, c.in.Now, nth) }, n))
	}
	return items
}

// numbered makes an item of news whose line may have been said before, of something else that happened later to the same
// file: then it says which time it is, so that it is another line.
func (c *composer) numbered(write func(nth int) string, news ...*News) item {
	line := appendLasting(nil, write(1))
	nth := 1
	mark := func() LineDigest { return digestOf("news line", string(line), ordinal(nth)) }
	for c.told.has(mark()) || c.said[mark()] {
		nth++
	}
	c.say(mark())
	i := item{waits: true, write: func() string { return write(nth) }, marks: []LineDigest{mark()}, kinds: map[NewsKind]int{}}
	for _, n := range news {
		i.marks = append(i.marks, n.digest())
		i.kinds[n.Kind]++
	}
	return i
}

// holds are the reasons for which a turn is held open: a file that was denied in it and is free now, and an urgent message.
func (c *composer) holds() []item {
	var items []item
	for i := range c.in.News {
		n := &c.in.News[i]
		waited := (n.Kind == NewsFreed || n.Kind == NewsTurn) && n.Turn == c.in.TurnNumber
		if !c.told.has(n.digest()) && (waited || n.Kind == NewsMail && n.Urgent) {
			items = append(items, c.numbered(func(nth int) string { return newsLine(n, c.in.Now, nth) }, n))
		}
	}
	return items
}

func (c *composer) say(line LineDigest) {
	if c.said == nil {
		c.said = map[LineDigest]bool{}
	}
	c.said[line] = true
}

func (n *News) time() time.Time { return n.At.Time() }

const (
	// newsKept is how long news waits to be told.
	newsKept = gitlog.Millis(12 * 60 * 60 * 1000)
	// newsMost bounds what waits to be told to a context; the oldest goes first.
	newsMost = 200
)

// slot is what later news takes the place of, as long as the earlier was not told: a file that was changed twice is news once.
func (n *News) slot() string {
	switch n.Kind {
	case NewsChanged, NewsRemoved:
		return "read\x00" + n.Root + "\x00" + n.Path
	case NewsFreed:
		return "denied\x00" + n.Root + "\x00" + n.Path
	}
	return n.Key
}

// hear keeps news for a context until it is told.
func (c *sessionContext) hear(n News) {
	if n.Kind == NewsChanged || n.Kind == NewsRemoved {
		if t := c.touched[n.Root][n.Path]; t != nil {
			outdated := *t
			outdated.Outdated = true
			c.touched[n.Root][n.Path] = &outdated
		}
	}
	for i := range c.news {
		was := &c.news[i]
		if was.Key == n.Key {
			return
		}
		if was.slot() == n.slot() && !c.told.has(was.digest()) {
			c.news = slices.Replace(slices.Clone(c.news), i, i+1, n)
			return
		}
	}
	c.news = append(slices.Clip(c.news), n)
	c.news = c.news[max(0, len(c.news)-newsMost):]
}

// drop takes news back.
func (c *sessionContext) drop(which func(*News) bool) {
	c.news = slices.DeleteFunc(slices.Clone(c.news), func(n News) bool { return which(&n) })
}

// forgetTold drops what was told, and what waited for too long.
func (c *sessionContext) forgetTold() {
	c.drop(func(n *News) bool { return c.told.has(n.digest()) || n.At+newsKept < c.began })
}

// forget drops what is no news to a context that begins anew: what it was told, and what became of files that it knows no more.
func (c *sessionContext) forget(now gitlog.Millis) {
	c.emptied = now
	c.drop(func(n *News) bool { return c.told.has(n.digest()) || n.Kind == NewsChanged || n.Kind == NewsRemoved })
}

// knows drops what is no news since the context read or wrote that file itself.
func (c *sessionContext) knows(t *touch) {
	if t.Outdated || t.Read == 0 && t.Wrote == 0 || len(c.news) == 0 {
		return
	}
	c.drop(func(n *News) bool {
		if n.Root != t.Root || n.Path != t.Path || c.told.has(n.digest()) {
			return false
		}
		return n.Kind == NewsChanged || n.Kind == NewsRemoved || n.Kind == NewsFreed && t.Wrote != 0
	})
}

// heard says whether a context knows of something, or is about to be told.
func (c *sessionContext) heard(key string) bool {
	return c.told.has(digestOf("news", key)) || slices.ContainsFunc(c.news, func(n News) bool { return n.Key == key })
}

// awaits says whether a context is about to be told that a file which it read was changed.
func (c *sessionContext) awaits(root, path string) bool {
	return slices.ContainsFunc(c.news, func(n News) bool {
		return (n.Kind == NewsChanged || n.Kind == NewsRemoved) && n.Root == root && n.Path == path && !c.told.has(n.digest())
	})
}

// waitsIn says whether a context was denied a file in its turn and was not told that it is free.
func (c *sessionContext) waitsIn(turn int) bool {
	return slices.ContainsFunc(c.news, func(n News) bool { return n.Kind == NewsFreed && n.Turn == turn && !c.told.has(n.digest()) })
}

// newsFor is what a context is told now of what waits for it: not that a file is free which is held still, nor that one is
// gone which is there.
func (c *sessionContext) newsFor(in *BriefInput, around *surroundings) []News {
	out := slices.Clone(around.news)
	for _, n := range c.news {
		if c.told.has(n.digest()) || n.At+newsKept < gitlog.MillisOf(in.Now) {
			continue
		}
		switch n.Kind {
		case NewsFreed:
			if n.Root != in.Root || around.held[n.Path] {
				continue
			}
			if until, turn := around.turns[n.Path]; turn {
				n.Kind, n.Until = NewsTurn, until
			}
		case NewsRemoved:
			if n.Place == InYourTree && there(n.Root, n.Path) {
				continue
			}
		}
		if n.Root != "" && n.Root != in.Root {
			n.Path = filepath.Join(n.Root, n.Path) // of another worktree than the one that the session is in
		}
		out = append(out, n)
	}
	return out
}

// waiting is what a context waits for.
func (c *sessionContext) waiting() (news []News) {
	for _, n := range c.news {
		if n.Kind == NewsFreed && !c.told.has(n.digest()) {
			news = append(news, n)
		}
	}
	return news
}
