package daemon

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"knoot.dev/knoot/gitlog"
)

// Peer is who somebody is for an agent that is told of them: another session's agent, or a person. Its strings may hold
// anything.
type Peer struct {
	Member string `json:"member,omitempty"` // the member's name; "" not known
	Agent  string `json:"agent,omitempty"`  // the name that the agent was given (KNOOT_AGENT); mostly ""
	Person bool   `json:"person,omitempty"` // a person, not an agent
}

// BriefPeer is another session of the repository, or a person at work in it, as a brief may name it.
type BriefPeer struct {
	Peer
	Key  string // names the session; never shown
	Here bool   // it works in the worktree of whoever is told
	// Branch is the full ref name, "" where it is detached; SameBranch that it is that of whoever is told.
	Branch     string
	SameBranch bool
	// Files are those that it holds or wrote in this turn or the last, the latest first, relative to the root.
	Files []string
	// Plan is what it said it means to do, or, where Derived, what its intent says. "": nothing that it shares.
	Plan    string
	Derived bool
	Decided []string
	At      gitlog.Millis // its last sign of life
}

// BriefQueue is a hub for which sessions wait.
type BriefQueue struct {
	Path    string
	Waiting int // sessions in the queue
	Place   int // of whoever is told, from 1; 0: it does not wait
}

// How near a peer's work is to the session's; a greater one ranks first.
type peerNearness int

const (
	farPeer peerNearness = iota
	sameTask
	sameDirectory
	sameFile
)

// maxPeers is how many peers a brief tells of one by one.
const maxPeers = 5

// peerItems are the peers whose work touches this session's: same file, same directory, same task. On another branch a
// neighbour in the directory changes nothing here, and what both branches change is the same file.
func (c *composer) peerItems() []item {
	if len(c.in.Peers) == 0 {
		return nil
	}
	files, dirs := c.around()
	type nearPeer struct {
		*BriefPeer
		how  peerNearness
		file string // the one that is near
	}
	var near []nearPeer
	for i := range c.in.Peers {
		p := nearPeer{BriefPeer: &c.in.Peers[i]}
		for _, f := range p.Files {
			f := c.spell(f)
			switch {
			case files[f] && p.how < sameFile:
				p.how, p.file = sameFile, f
			case dirs[parent(f)] && p.how < sameDirectory && (p.Here || p.SameBranch):
				p.how, p.file = sameDirectory, f
			}
		}
		if p.how == farPeer && likeTask(c.in.Doing, p.Plan) {
			p.how = sameTask
		}
		if p.how != farPeer {
			near = append(near, p)
		}
	}
	slices.SortStableFunc(near, func(a, b nearPeer) int {
		return cmp.Or(cmp.Compare(b.how, a.how), compareBool(b.Here, a.Here), compareBool(b.SameBranch, a.SameBranch), cmp.Compare(b.At, a.At), strings.Compare(a.Key, b.Key))
	})
	var items []item
	for _, p := range near {
		if len(items) == maxPeers {
			break
		}
		// A peer that goes through the files of a directory is told once for the directory.
		where := p.file
		if p.how == sameDirectory {
			where = parent(p.file)
		}
		known := digestOf(append([]string{"peer", p.Key, ordinal(int(p.how)), where, p.Branch, p.Plan}, p.Decided...)...)
		text := peerLine(p.BriefPeer, p.how, p.file)
		line := digestOf("peer line", text)
		if c.near == nil {
			c.near = map[string]bool{}
		}
		c.near[p.Key] = true
		if c.told.has(known) || c.told.has(line) || c.said[line] {
			continue
		}
		c.say(line)
		items = append(items, item{waits: true, write: func() string { return text }, marks: []LineDigest{known, line, presentDigest(p.BriefPeer)}})
	}
	return items
}

// around are the files that the session is at, and their directories: a file of long ago makes nobody a neighbour.
func (c *composer) around() (files, dirs map[string]bool) {
	files, dirs = map[string]bool{}, map[string]bool{}
	for _, p := range c.in.Turn {
		p = c.spell(p)
		files[p], dirs[parent(p)] = true, true
	}
	if c.in.Event == EventPrompt && c.in.Prompt != "" {
		named := readPrompt(c.in.Prompt, c.in.Root)
		for _, p := range named.paths {
			p = c.spell(strings.TrimSuffix(p, "/"))
			files[p], dirs[p] = true, true
			if strings.Contains(p, "/") {
				dirs[parent(p)] = true
			}
		}
	}
	return files, dirs
}

func (c *composer) spell(p string) string {
	if c.in.FoldCase {
		return strings.ToLower(p)
	}
	return p
}

func presentDigest(p *BriefPeer) LineDigest { return digestOf("present", p.Key, p.Branch) }

// maxCompany is among how many others one more is worth a brief of its own.
const maxCompany = 4

// presenceItems say who else is here, in one line, when somebody is of whom the context was not told.
func (c *composer) presenceItems() []item {
	fresh := false
	var all []*BriefPeer
	var marks []LineDigest
	for i := range c.in.Peers {
		p := &c.in.Peers[i]
		if c.near[p.Key] {
			continue
		}
		all = append(all, p)
		if mark := presentDigest(p); !c.told.has(mark) {
			fresh = true
			marks = append(marks, mark)
		}
	}
	if !fresh {
		return nil
	}
	text := presenceLine(all)
	line := digestOf("presence", text)
	if c.told.has(line) {
		return nil
	}
	aside := c.in.Event == EventPrompt && len(all) > maxCompany
	return []item{{waits: true, aside: aside, write: func() string { return text }, marks: append(marks, line)}}
}

// queueItems are the queues for files that the session touched, or waits for.
func (c *composer) queueItems() []item {
	if len(c.in.Queues) == 0 {
		return nil
	}
	files, _ := c.around()
	var items []item
	for i := range c.in.Queues {
		q := &c.in.Queues[i]
		if q.Waiting == 0 || q.Place == 0 && !files[c.spell(q.Path)] {
			continue
		}
		text := queueLine(q)
		if mark := digestOf("queue", text); !c.told.has(mark) {
			items = append(items, item{waits: true, write: func() string { return text }, marks: []LineDigest{mark}})
		}
	}
	return items
}

// Two sessions seem to be at one task when what they say of it shares at least so many words, and this part of the shorter.
const (
	sharedWords   = 5
	sharedPercent = 60
	// sharedWithin is how long after a session was last heard of another one is asked whether it does the same.
	sharedWithin = 12 * time.Hour
)

// likeTask says whether two texts seem to name one task. Words of one or two bytes, and those that say nothing, do not count.
func likeTask(a, b string) bool {
	words := func(text string) map[uint64]bool {
		found := map[uint64]bool{}
		eachWord(text, func(word uint64) {
			if !stopWord(word) {
				found[word] = true
			}
		})
		return found
	}
	one, two := words(a), words(b)
	shared := 0
	for word := range one {
		if two[word] {
			shared++
		}
	}
	return shared >= sharedWords && 100*shared >= sharedPercent*min(len(one), len(two))
}
