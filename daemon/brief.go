package daemon

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// The events that a brief is composed for, named alike for every agent. At any other event nothing is said.
const (
	EventSessionStart  = "SessionStart"
	EventSubagentStart = "SubagentStart"
	EventPrompt        = "UserPromptSubmit"
	EventPreTool       = "PreToolUse"
	EventPostTool      = "PostToolUse"
)

// BriefInput is everything that a brief depends on. Compose asks for nothing else: no clock, no file, no git.
type BriefInput struct {
	Event    string // EventSessionStart, …
	Source   string // SessionStart's: startup, resume, clear, compact or fork
	Subagent bool   // the context is a subagent's
	Now      time.Time

	Budget BriefBudget
	// Spent is how many bytes this context was told since its turn began. What its session's start was told does not
	// count, and at EventPrompt nothing was told yet.
	Spent int

	// Told are the lines that this context was shown; nil is none. Compose does not change it.
	Told Told
	// Invited says that the session was told how to leave a fact.
	Invited bool
	// Introduction is what the session is still to be told of who it is, at its start or else with a prompt: knoot's own words, in a line
	// of at most 300 bytes; "": nothing.
	Introduction string
	// Waits says that the context was denied a file in this turn and was not told yet that it is free.
	Waits bool

	// Paths are relative to the repository's root, as gitlog has them. Call are those of this tool call, Turn those that
	// the session read or wrote since its turn began, Session all that it read or wrote.
	Call, Turn, Session []string
	// Writes are those of Call that are about to be written, at EventPreTool.
	Writes []string
	// Prompt is the prompt's text, at most 64 KiB, and Root the absolute path of the worktree that absolute paths in it
	// are taken to be relative to. Used where the event is EventPrompt.
	Prompt, Root string
	// Area is the path prefix of the area of the session's directory; "" where it lies in none.
	Area string
	// FoldCase is core.ignorecase: paths that differ in case alone are the same.
	FoldCase bool

	// Facts are the facts and cached answers that count now, in any order, each name of a room once.
	Facts []BriefFact
	// Own are the paths that hold what this session itself wrote there (a write's stamp is still the file's). That a fact
	// which it was told is in doubt now for such a change is no news; nil: not known, and it is told.
	Own []string
	// Instructions is what the agent reads by itself: CLAUDE.md, AGENTS.md.
	Instructions Instructions

	// News is what happened to this session, in any order; what the context was told is among it, or not.
	News []News
	// TurnNumber is the number of the turn that goes on.
	TurnNumber int
	// Peers are the other sessions of the repository, and the people at work in it.
	Peers []BriefPeer
	// Doing is what this session said that it does: its plan, else its intent.
	Doing string
	// Queues are those of the repository's hubs.
	Queues []BriefQueue

	// Since is what changed while nobody was here, for a SessionStart with source resume or fork; nil: not known.
	Since *SinceLast
}

// BriefBudget is the [brief] part of config.toml that a brief needs: bytes of UTF-8, headings included.
type BriefBudget struct {
	Turn   int  // 2,000: all that a turn's hooks say together
	Start  int  // 4,000: a session's start
	Resume int  // 1,000: a start that resumes or forks
	Invite bool // say, once a session, how to leave a fact
}

// BriefFact is a fact or a cached answer that a brief may carry. Its strings may hold anything.
type BriefFact struct {
	ID     string // the entry's id, in hex
	Name   string
	Text   string
	Cache  bool     // a cached answer
	Paths  []string // where its paths are now, renames followed, one that is gone as it was; none: it belongs to Area
	Globs  []string // its paths that are globs
	Author string   // the member's name
	Agent  bool     // an agent wrote it, not a person
	At     time.Time
	Room   string // the room's id, in hex
	Pinned bool
	Former bool   // the author has left the team
	Area   string // of a fact without paths: its path prefix; "": the whole repository

	Stale bool
	// Reason says who changed what, when and how much, or that the fact was written against a newer version (then Stale
	// is false); "": nothing to say.
	Reason string
	// Disagrees are the authors of other current facts of the same name, written without knowledge of this one.
	Disagrees []BriefAuthor
}

// BriefAuthor is who wrote something: a member's name, and whether it was the member's agent.
type BriefAuthor struct {
	Name  string
	Agent bool
}

// SinceLast is what changed since a session was last here.
type SinceLast struct {
	Last time.Time // when its last hook came
	// Ended are the facts that this context was shown and that are no longer current, those with a successor of the same
	// name excluded: Compose finds these by itself among the facts.
	Ended []EndedFact
	// Files are those that this session read and somebody else changed.
	Files []ChangedFile
}

// EndedFact is a fact that no longer counts.
type EndedFact struct {
	ID, Name string
	By       *BriefAuthor // who took it back; nil: it ran out, or that is not known
	At       time.Time    // when it was taken back; not used without By
}

// ChangedFile is a file that a session read and that is not what it was then.
type ChangedFile struct {
	Path   string
	By     string    // who changed it: a member's name or git's author; "": not known
	At     time.Time // zero: not known
	Commit string    // hex, abbreviated or not; "": none
	Gone   bool      // it was removed
}

// Brief is what a hook has to say to one context.
type Brief struct {
	// Text is the block, verbatim, without a final line feed; "": nothing to say.
	Text  string
	Bytes int    // of Text
	Cause string // why it was said, for `knoot shown`
	// Clear says that the context began anew: what it was told before is forgotten, also where Text is empty.
	Clear bool
	// Told is what the caller adds to the context's Told, and takes out again if the text did not reach the agent. A fact
	// has several digests there.
	Told []LineDigest
	// Invited says that the text tells how to leave a fact; the session is then not invited again.
	Invited bool
	// Introduced says that the text tells the session who it is; it is not told again.
	Introduced bool
	// Facts are the facts and cached answers delivered, in the order of the text, and More how many did not fit.
	Facts []DeliveredFact
	More  int
	// News counts the news delivered.
	News map[NewsKind]int
}

// Compose says what an agent is told at an event. It is a pure function, and safe for use by several goroutines.
func Compose(in *BriefInput) Brief {
	c := composer{in: in, told: in.Told}
	if clears(in) {
		c.told = nil
		c.brief.Clear = true
	}
	budget := 0
	switch in.Event {
	case EventSessionStart:
		budget = in.Budget.Start
		if resumes(in) {
			budget = in.Budget.Resume
		}
	case EventPrompt:
		budget = in.Budget.Turn
	case EventSubagentStart, EventPreTool, EventPostTool:
		budget = in.Budget.Turn - in.Spent
	case eventStop:
		c.items = c.holds()
		if c.put(in.Budget.Turn-in.Spent, holdHeading, false) {
			c.brief.Cause = cause(in)
		}
		c.brief.Bytes = len(c.brief.Text)
		return c.brief
	default:
		return c.brief
	}
	if in.Waits && in.Event != EventSessionStart {
		budget -= holdReserve
	}
	for _, p := range order {
		if p.at(in) {
			c.items = append(c.items, p.compose(&c)...)
		}
	}
	if !slices.ContainsFunc(c.items, func(i item) bool { return !i.aside }) {
		c.items = nil
	}
	c.fit(budget)
	return c.brief
}

// introduces says whether the session is told who it is, in front of all else.
func (c *composer) introduces(budget int) bool {
	opens := c.in.Event == EventSessionStart || c.in.Event == EventPrompt
	return opens && !c.in.Subagent && c.in.Introduction != "" && len(c.in.Introduction) <= budget
}

// A part is a kind of thing that a brief may carry.
type part struct {
	at      func(*BriefInput) bool
	compose func(*composer) []item
}

// order is the order of a block's parts. A denial's reason goes before all of them.
var order = []part{
	{resumes, (*composer).since},
	{always, (*composer).newsItems},
	{opens, (*composer).peerItems},
	{always, (*composer).facts},
	{starts, (*composer).areaFacts},
	{opens, (*composer).presenceItems},
	{opens, (*composer).queueItems},
}

// holdReserve is what a turn that was denied a file keeps of its budget, to be told at its end that it is free.
const holdReserve = 400

func always(*BriefInput) bool { return true }

// opens says whether a context begins or a turn of it does: then it is told who else is at work.
func opens(in *BriefInput) bool { return starts(in) || in.Event == EventPrompt }

// starts says whether a context begins, so that it is told facts without a path.
func starts(in *BriefInput) bool {
	return in.Event == EventSessionStart || in.Event == EventSubagentStart
}

// resumes says whether a context goes on after a while: it keeps what it was told.
func resumes(in *BriefInput) bool {
	return in.Event == EventSessionStart && (in.Source == "resume" || in.Source == "fork")
}

// clears says whether a context begins with nothing of what it was told before: startup, clear and compact. So may one with a
// source that is not known.
func clears(in *BriefInput) bool {
	return in.Event == EventSessionStart && !resumes(in)
}

func toolCall(in *BriefInput) bool {
	return in.Event == EventPreTool || in.Event == EventPostTool
}

// item is one thing that a block may say: a line, perhaps with lines below it that belong to it. It is all told or not at
// all.
type item struct {
	lead string     // a line that opens its group, said before the first of the group only
	fact *candidate // a fact, or
	// write and marks, for anything else: its text, and the digests that it is known by.
	write func() string
	marks []LineDigest
	kinds map[NewsKind]int // of news that it stands for
	// aside says that it is told along with something else, and not alone.
	aside bool
	// waits says that it is told later where it does not fit, so that it is not counted among what is left out.
	waits bool
}

func (i *item) text(news factNews, now time.Time) string {
	if i.fact != nil {
		return factLines(i.fact.fact, i.fact.path, news, now, max(i.fact.nth, 1))
	}
	return i.write()
}

type composer struct {
	in    *BriefInput
	told  Told
	items []item
	taken map[factName]bool   // facts that are among the items
	said  map[LineDigest]bool // lines that are among the items and could come twice
	near  map[string]bool     // keys of peers that are among the items
	brief Brief
}

type factName struct {
	room, name string
	cache      bool
}

// since is what changed while the session was away: facts that it was shown, and files that it read.
func (c *composer) since() (items []item) {
	lead := sinceLine(time.Time{}, c.in.Now)
	if c.in.Since != nil {
		lead = sinceLine(c.in.Since.Last, c.in.Now)
	}
	add := func(i item) {
		if i.fact != nil || !c.toldAll(i.marks) {
			i.lead = lead
			items = append(items, i)
		}
	}
	var changed []*candidate
	for n := range c.in.Facts {
		f := &c.in.Facts[n]
		at := candidate{fact: f, place: place{path: firstPath(f)}}
		if c.isNews(&at) && c.news(f) != newFact {
			changed = append(changed, &at)
		}
	}
	slices.SortFunc(changed, byRank)
	for _, i := range c.factItems(changed) {
		add(i)
	}
	if c.in.Since == nil {
		return items
	}
	for n := range c.in.Since.Ended {
		f := &c.in.Since.Ended[n]
		add(item{
			write: func() string { return endedFactLine(f, c.in.Now) },
			marks: []LineDigest{digestOf("ended", f.ID)},
		})
	}
	var files []item
	for n := range c.in.Since.Files {
		f := &c.in.Since.Files[n]
		i := item{write: func() string { return changedFileLine(f, c.in.Now) }, marks: []LineDigest{changedFileDigest(f)}}
		if !c.toldAll(i.marks) {
			files = append(files, i)
		}
	}
	if len(files) > maxNews {
		n := len(files)
		all := item{write: func() string { return changedFilesLine(n) }}
		for _, i := range files {
			all.marks = append(all.marks, i.marks...)
		}
		files = []item{all}
	}
	for _, i := range files {
		add(i)
	}
	return items
}

func (c *composer) toldAll(marks []LineDigest) bool {
	return !slices.ContainsFunc(marks, func(d LineDigest) bool { return !c.told.has(d) })
}

// facts are the facts about what the session touches; before and after a tool call, about that call's paths alone.
func (c *composer) facts() []item {
	v := newVicinity(c.in.FoldCase)
	var named *prompt
	if toolCall(c.in) {
		for _, p := range c.in.Call {
			v.touch(p, thisTurn)
		}
	} else {
		for _, p := range c.in.Turn {
			v.touch(p, thisTurn)
		}
		for _, p := range c.in.Session {
			v.touch(p, thisSession)
		}
		if c.in.Event == EventPrompt && c.in.Prompt != "" {
			p := readPrompt(c.in.Prompt, c.in.Root)
			named = &p
			v.name(named)
		}
	}
	if len(v.exact) == 0 && named == nil {
		return nil
	}
	var found []*candidate
	for n := range c.in.Facts {
		f := &c.in.Facts[n]
		place := v.place(f)
		if place.how == unrelated {
			continue
		}
		at := &candidate{fact: f, place: place}
		if c.isNews(at) {
			if named != nil {
				at.words = named.match(f.Name, f.Text)
			}
			found = append(found, at)
		}
	}
	slices.SortFunc(found, byRank)
	return c.factItems(found)
}

// maxAreaFacts is how many facts without a path a start tells.
const maxAreaFacts = 10

// areaFacts are the facts without a path, of the whole repository and of the area of the session's directory.
func (c *composer) areaFacts() []item {
	var found []*candidate
	for n := range c.in.Facts {
		f := &c.in.Facts[n]
		if len(f.Paths)+len(f.Globs) > 0 || f.Area != "" && f.Area != c.in.Area {
			continue
		}
		if at := (candidate{fact: f}); c.isNews(&at) {
			found = append(found, &at)
		}
	}
	slices.SortFunc(found, byPinAndAge)
	items := c.factItems(found)
	if over := len(items) - maxAreaFacts; over > 0 {
		c.brief.More += over
		items = items[:maxAreaFacts]
	}
	return items
}

// isNews says whether a fact says anything that the context does not know.
func (c *composer) isNews(at *candidate) bool {
	at.line = lineDigest(at.fact)
	if c.told.has(at.line) || c.toldOfChange(at.fact) || c.in.Instructions.says(at.fact.Text) {
		return false
	}
	return !c.own(at.fact) || c.news(at.fact) != doubtedFact
}

// toldOfChange says whether the context was told that a file of the fact changed, before it was known who changed it: that is no
// news of its own.
func (c *composer) toldOfChange(f *BriefFact) bool {
	if !f.Stale || len(c.told) == 0 {
		return false
	}
	before := *f
	return slices.ContainsFunc(f.Paths, func(path string) bool {
		before.Reason = path + changedSince
		return c.told.has(lineDigest(&before))
	})
}

// news says how a fact that is news stands to what the context was told.
func (c *composer) news(f *BriefFact) factNews {
	name, text := knownDigests(f)
	switch {
	case !c.told.has(name):
		return newFact
	case !c.told.has(text):
		return replacedFact
	case f.Stale || f.Reason != "" || len(f.Disagrees) > 0:
		return doubtedFact
	}
	return restoredFact
}

// own says whether a fact is in doubt for what the session itself wrote.
func (c *composer) own(f *BriefFact) bool {
	return f.Stale && len(f.Disagrees) == 0 && slices.ContainsFunc(f.Paths, func(p string) bool { return slices.Contains(c.in.Own, p) })
}

// factItems makes items of facts, each name once.
func (c *composer) factItems(found []*candidate) []item {
	if c.taken == nil {
		c.taken = make(map[factName]bool, len(found))
	}
	items := make([]item, 0, len(found))
	for _, at := range found {
		if at.fact.Cache && (at.fact.Stale || at.fact.Reason != "") {
			continue // a cached answer is gone when a file that it names changes
		}
		if name := (factName{at.fact.Room, at.fact.Name, at.fact.Cache}); !c.taken[name] {
			c.taken[name] = true
			items = append(items, item{fact: at})
		}
	}
	return items
}

func firstPath(f *BriefFact) string {
	for _, p := range f.Paths {
		return p
	}
	for _, g := range f.Globs {
		return g
	}
	return ""
}

// fit makes the block: as many items as the budget takes, in their order, then a count of the rest.
func (c *composer) fit(budget int) {
	invite, introduce := c.invites(), c.introduces(budget)
	if introduce {
		budget -= len(c.in.Introduction) + len("\n")
	}
	if c.put(budget, heading, invite) || invite && c.put(budget, heading, false) {
		c.brief.Cause = cause(c.in)
	} else if invite && c.in.Event == EventSessionStart && len(invitation) <= budget {
		c.brief.Text, c.brief.Invited, c.brief.Cause = invitation, true, cause(c.in)
	}
	if introduce {
		c.brief.Text, c.brief.Introduced, c.brief.Cause = strings.TrimSuffix(c.in.Introduction+"\n"+c.brief.Text, "\n"), true, cause(c.in)
	}
	c.brief.Bytes = len(c.brief.Text)
}

// invites says whether the session is to be told how to leave a fact, if anything else is said or it begins.
func (c *composer) invites() bool {
	if !c.in.Budget.Invite || c.in.Subagent || c.in.Event == EventSubagentStart || toolCall(c.in) {
		return false
	}
	begins := c.in.Event == EventSessionStart && (c.in.Source == "startup" || c.in.Source == "clear")
	return begins || !c.in.Invited
}

// maxPassed is after how many items that do not fit no further one is tried: one may be long and the next short.
const maxPassed = 4

// put writes the block, which opens with first, into the brief; it says whether there is one.
func (c *composer) put(budget int, first string, invite bool) bool {
	var b strings.Builder
	b.WriteString(first)
	reserve := 0
	if invite {
		reserve = len("\n") + len(invitation)
	}
	total := c.brief.More
	for n := range c.items {
		if !c.items[n].waits {
			total++
		}
	}
	placed, passed, lead, said := 0, 0, "", false
	for n := range c.items {
		i := &c.items[n]
		news := newFact
		if i.fact != nil {
			news = c.news(i.fact.fact)
			if news == doubtedFact || news == restoredFact {
				i.fact.nth = c.count(i, news)
			}
		}
		text := "\n" + i.text(news, c.in.Now)
		switch {
		case i.lead == lead:
		case i.lead != "":
			text = "\n" + i.lead + text
		default:
			text = "\n" + alsoLine + text
		}
		after, counts := reserve, 1
		if i.waits {
			counts = 0
		}
		if rest := total - placed - counts; rest > 0 {
			after += len("\n") + len(moreLine(rest))
		}
		if b.Len()+len(text)+after > budget {
			if passed++; passed == maxPassed {
				break
			}
			continue
		}
		b.WriteString(text)
		lead, said = i.lead, true
		placed += counts
		marks := i.marks
		if i.fact != nil {
			f := i.fact.fact
			name, text := knownDigests(f)
			marks = []LineDigest{name, text, i.fact.line}
			if i.fact.nth > 0 {
				marks = append(marks, i.shortLine(news, i.fact.nth))
			}
			c.brief.Facts = append(c.brief.Facts, DeliveredFact{ID: f.ID, Name: f.Name, Author: f.Author, Agent: f.Agent, Stale: f.Stale})
		}
		for kind, n := range i.kinds {
			if c.brief.News == nil {
				c.brief.News = map[NewsKind]int{}
			}
			c.brief.News[kind] += n
		}
		for _, d := range marks {
			if !c.told.has(d) {
				c.brief.Told = append(c.brief.Told, d)
			}
		}
	}
	if !said {
		return false
	}
	c.brief.More = total - placed
	if c.brief.More > 0 {
		if more := digestOf("more", strconv.Itoa(c.brief.More)); !c.told.has(more) {
			b.WriteString("\n" + moreLine(c.brief.More))
			c.brief.Told = append(c.brief.Told, more)
		}
	}
	if invite {
		b.WriteString("\n" + invitation)
		c.brief.Invited = true
	}
	c.brief.Text = b.String()
	return true
}

// deniedCause says, in words, what was refused.
func deniedCause(denied []DeniedFile) string {
	return "denial of a write of " + deniedPaths(denied)
}

func deniedPaths(denied []DeniedFile) string {
	var paths []string
	for _, f := range denied {
		paths = append(paths, f.Path)
	}
	return somePaths(paths)
}

// somePaths names the first of some paths, and counts the rest.
func somePaths(paths []string) string {
	if len(paths) == 1 {
		return quotePath(paths[0])
	}
	return quotePath(paths[0]) + " and " + strconv.Itoa(len(paths)-1) + " more"
}

// shortLine is the digest of what is said of a fact without its text, for the nth time.
func (i *item) shortLine(news factNews, nth int) LineDigest {
	line := factLines(i.fact.fact, i.fact.path, news, time.Time{}, 1)
	return digestOf("fact line", string(appendLasting(nil, line)), ordinal(nth))
}

// count says for which time what is said of a fact without its text is said.
func (c *composer) count(i *item, news factNews) int {
	nth := 1
	for c.told.has(i.shortLine(news, nth)) {
		nth++
	}
	return nth
}

// cause says, in words, which hook a brief answered.
func cause(in *BriefInput) string {
	call := func(when string) string {
		if len(in.Call) == 0 {
			return when + " a tool call"
		}
		return when + " a tool call on " + somePaths(in.Call)
	}
	switch in.Event {
	case EventSessionStart:
		return "start of the session (" + quoteName(in.Source, maxNameBytes) + ")"
	case EventSubagentStart:
		return "start of a subagent"
	case EventPreTool:
		return call("before")
	case EventPostTool:
		return call("after")
	case eventStop:
		return "end of the turn"
	}
	return "prompt"
}
