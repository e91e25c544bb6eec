package daemon

import (
	"crypto/sha256"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

const (
	// maxRelayNames bounds the names that are remembered; with more all are forgotten, and found again as they come up.
	maxRelayNames = 50_000
	// maxOpened bounds likewise the opened details that are remembered.
	maxOpened = 1_000
)

// relayNames are what tokens stand for, and the tokens of own names. The repository's lock guards it.
type relayNames struct {
	device        gitlog.DeviceID
	blinding, was *gitlog.Blinding                // was: the one before, for one lease after its tokens were over; else nil
	paths         map[string]*arbiter.Path        // tokens of a path; nil: it has none
	ofPath        map[arbiter.Token]string        // the path of a token
	ofBranch      map[arbiter.Token]string        // the full ref name
	tokens        map[sessionKey]arbiter.Token    // of own sessions: a session keeps the one that it began with
	sessions      map[arbiter.Token]relayDetail   // what is known of a session by its own word
	counters      gitlog.LiveCounters             // of what was opened
	opened        map[[32]byte]*openedDetail      // what was opened lately, by the SHA-256 of the sealed text; nil: it does not open
	sealed        map[arbiter.Token]gitlog.Millis // the last counter of an own session
}

func newRelayNames(device gitlog.DeviceID) relayNames {
	return relayNames{device: device, paths: map[string]*arbiter.Path{}, ofPath: map[arbiter.Token]string{}, ofBranch: map[arbiter.Token]string{}, tokens: map[sessionKey]arbiter.Token{},
		sessions: map[arbiter.Token]relayDetail{}, counters: gitlog.LiveCounters{}, opened: map[[32]byte]*openedDetail{}, sealed: map[arbiter.Token]gitlog.Millis{}}
}

// by makes tokens of another state of the team from now on. rotated: the tokens are others, and those before count, too, until forgetWas.
func (n *relayNames) by(b *gitlog.Blinding) (rotated bool) {
	if n.blinding != nil && !n.blinding.SameTokens(b) {
		n.was, rotated = n.blinding, true
	}
	n.blinding = b
	n.paths = map[string]*arbiter.Path{}
	clear(n.opened) // whoever signed it may have left the team
	return rotated
}

// forgetWas ends the time in which the tokens before count.
func (n *relayNames) forgetWas() {
	n.was = nil
	n.paths = map[string]*arbiter.Path{}
}

// path returns the tokens of a path; false where this device has no key for it.
func (n *relayNames) path(path string) (arbiter.Path, bool) {
	if p, known := n.paths[path]; known {
		if p == nil {
			return arbiter.Path{}, false
		}
		return *p, true
	}
	if len(n.paths) > maxRelayNames {
		n.paths = map[string]*arbiter.Path{}
	}
	p, ok := pathBy(n.blinding, path)
	if !ok {
		n.paths[path] = nil
		return p, false
	}
	if n.was != nil {
		if was, ok := pathBy(n.was, path); ok && was.Own != p.Own {
			p.Was = &was
		}
	}
	n.paths[path] = &p
	n.learnPath(p.Own, path)
	return p, true
}

func pathBy(b *gitlog.Blinding, path string) (p arbiter.Path, ok bool) {
	own, above, ok := b.Path(path)
	p.Own = arbiter.Token(own)
	for _, t := range above {
		p.Ancestors = append(p.Ancestors, arbiter.Token(t))
	}
	return p, ok
}

func (n *relayNames) learnPath(t arbiter.Token, path string) {
	if len(n.ofPath) > maxRelayNames {
		clear(n.ofPath)
	}
	n.ofPath[t] = path
}

func (n *relayNames) learnBranch(t arbiter.Token, ref string) {
	if len(n.ofBranch) > maxRelayNames {
		clear(n.ofBranch)
	}
	n.ofBranch[t] = ref
}

// session is the token of an own session.
func (n *relayNames) session(key sessionKey) arbiter.Token {
	t, known := n.tokens[key]
	if !known {
		if len(n.tokens) > maxRelayNames {
			clear(n.tokens)
			clear(n.sessions)
		}
		t = arbiter.Token(n.blinding.Session(key.Agent, key.ID))
		n.tokens[key] = t
		n.sessions[t] = relayDetail{Agent: key.Agent, Session: key.ID}
	}
	return t
}

// who makes the tokens of a party of this machine. gitDir is the git directory of its worktree.
func (n *relayNames) who(by party, gitDir string) arbiter.Who {
	b := n.blinding
	who := arbiter.Who{Session: n.session(by.Key), Subagent: by.Subagent, Device: n.device, Owner: b.Member, Person: by.Person,
		Branch: arbiter.Token(b.Branch(by.Branch, gitDir)), Worktree: arbiter.Token(b.Worktree(gitDir))}
	if n.was != nil {
		who.WasBranch, who.WasWorktree = arbiter.Token(n.was.Branch(by.Branch, gitDir)), arbiter.Token(n.was.Worktree(gitDir))
	}
	if by.Branch != "" {
		n.learnBranch(who.Branch, by.Branch)
	}
	return who
}

// seal seals a detail to the room of its path. nil where that cannot be: whoever reads then knows the device and nothing else.
func (n *relayNames) seal(kind gitlog.EntryKind, session arbiter.Token, now gitlog.Millis, d relayDetail) []byte {
	// The counter rises over restarts, too, without being kept: no session says more than a thousand things in a millisecond.
	counter := max(n.sealed[session]+1, now<<10)
	sealed, err := n.blinding.Seal(string(d.Path), kind, gitlog.Token(session), uint64(counter), now, d.encode())
	if err != nil {
		return nil
	}
	if len(n.sealed) > maxRelayNames {
		clear(n.sealed)
	}
	n.sealed[session] = counter
	return sealed
}

// take learns the names of an event that just came. o is what was sealed there, sum the SHA-256 of the sealed text where it is asked
// about; nil: that does not open. Without ok it came before, or with another event.
func (n *relayNames) take(e *arbiter.Event, o *openedDetail, sum [32]byte) (d relayDetail, ok bool) {
	if askedAbout(e.Kind) {
		n.remember(sum, o)
	}
	if o = o.with(e); o == nil || n.counters.Take(o.header) != nil {
		return d, false
	}
	if len(e.Paths) > 0 {
		n.learn(o.detail, e.Paths[0].Own, e.Branch)
	}
	return o.detail, true
}

// learn takes over what tokens of another machine's path and branch stand for, where that is so.
func (n *relayNames) learn(d relayDetail, path, branch arbiter.Token) {
	if len(d.Path) > 0 {
		if p, ok := n.path(string(d.Path)); ok && (p.Own == path || p.Was != nil && p.Was.Own == path) {
			n.learnPath(path, string(d.Path))
		}
	}
	if d.Branch != "" && (arbiter.Token(n.blinding.Branch(d.Branch, "")) == branch || n.was != nil && arbiter.Token(n.was.Branch(d.Branch, "")) == branch) {
		n.learnBranch(branch, d.Branch)
	}
}

// carries says whether an event of one kind may carry what was sealed for another: a claim that is denied, a write that was ungated.
func carries(event, sealed gitlog.EntryKind) bool {
	switch event {
	case gitlog.ClaimDenied:
		return sealed == gitlog.ClaimAcquired
	case gitlog.PathRemoved, gitlog.UngatedWrite:
		return sealed == gitlog.FileWritten
	}
	return event == sealed
}

// open opens what is asked about again and again, as what came with an event of this kind and session.
func (n *relayNames) open(kind gitlog.EntryKind, session arbiter.Token, sealed []byte) (d relayDetail, ok bool) {
	if len(sealed) == 0 {
		return d, false
	}
	sum := sha256.Sum256(sealed)
	o, known := n.opened[sum]
	if !known {
		o = openDetail(n.blinding, sealed)
		n.remember(sum, o)
	}
	if o == nil || !o.belongs(kind, session) {
		return d, false
	}
	return o.detail, true
}

// askedAbout says whether what was sealed for an event of a kind is asked about again (open).
func askedAbout(kind gitlog.EntryKind) bool {
	return kind == gitlog.ClaimAcquired || kind == gitlog.IntentDeclared || kind == gitlog.PlanDeclared
}

// remember keeps what opening by the state of the team came to. nil, what does not open by it, is kept, too.
func (n *relayNames) remember(sum [32]byte, o *openedDetail) {
	if len(n.opened) >= maxOpened {
		clear(n.opened)
	}
	n.opened[sum] = o
}

// openedDetail is a detail and what its signer said of it.
type openedDetail struct {
	header gitlog.LiveHeader
	detail relayDetail
}

// openDetail opens what came sealed; nil: it does not open. It takes a tenth of a millisecond, so many are opened without a lock.
func openDetail(b *gitlog.Blinding, sealed []byte) *openedDetail {
	if len(sealed) == 0 || b == nil {
		return nil
	}
	h, text, err := b.Open(sealed)
	if err != nil {
		return nil
	}
	d, err := decodeDetail(text)
	if err != nil {
		return nil
	}
	return &openedDetail{header: h, detail: d}
}

// belongs says whether a detail was sealed for what came with it.
func (o *openedDetail) belongs(kind gitlog.EntryKind, session arbiter.Token) bool {
	return arbiter.Token(o.header.Session) == session && carries(kind, o.header.Kind)
}

// with is what was sealed for an event; nil: there is nothing of it.
func (o *openedDetail) with(e *arbiter.Event) *openedDetail {
	session := e.Session
	if e.Kind == gitlog.MemoryPublished { // it belongs to no session, and is sealed under the device's id
		session = arbiter.Token(e.Device)
	}
	if o == nil || !o.belongs(e.Kind, session) {
		return nil
	}
	return o
}
