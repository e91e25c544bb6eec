package daemon

import (
	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/gitlog"
)

// arbiterName is what a token stands for.
type arbiterName struct {
	Kind  byte          `json:"kind"`
	Name  []byte        `json:"name"` // not necessarily UTF-8
	Token []byte        `json:"token"`
	Used  gitlog.Millis `json:"used"`
}

// arbiterNames keeps what tokens stand for. The arbitration's lock guards it.
type arbiterNames struct {
	device  gitlog.DeviceID
	byName  [sessionType + 1]map[string]arbiter.Token
	byToken map[arbiter.Token]*knownName
	fresh   []arbiter.Token // not in the file yet
	asked   int             // names that were asked about and not known
	unused  int             // of byToken, those that no event has used
}

type knownName struct {
	kind  byte
	name  string
	asked int           // which of those asked about it was
	used  gitlog.Millis // by an event; 0: never
	kept  bool          // it is in the file, or is about to be
}

func newArbiterNames(device gitlog.DeviceID) arbiterNames {
	n := arbiterNames{device: device, byToken: map[arbiter.Token]*knownName{}}
	for i := range n.byName {
		n.byName[i] = map[string]arbiter.Token{}
	}
	return n
}

// maxUnused bounds the names that were asked about and that no event has used. The older half goes then: the later may be about to
// be used.
const maxUnused = 100_000

// token returns the token of a name. Paths are folded as tokens want it; the spelling that came first is the name.
func (n *arbiterNames) token(a *arbitration, kind byte, name string) arbiter.Token {
	if t, ok := n.byName[kind][name]; ok {
		return t
	}
	if n.unused > maxUnused {
		n.drop(func(k *knownName) bool { return k.used == 0 && k.asked <= n.asked-maxUnused/2 })
	}
	value := name
	if kind == pathType {
		value = gitlog.FoldPath(name)
	}
	t := a.token(kind, value)
	n.byName[kind][name] = t
	if n.byToken[t] == nil {
		n.asked++
		n.unused++
		n.byToken[t] = &knownName{kind: kind, name: name, asked: n.asked}
	}
	return t
}

// name returns what a token stands for; "": not known.
func (n *arbiterNames) name(kind byte, t arbiter.Token) string {
	if k := n.byToken[t]; k != nil && k.kind == kind {
		return k.name
	}
	return ""
}

// use says that an event names these, so that they are kept as long as what it says may be asked about.
func (n *arbiterNames) use(at gitlog.Millis, e arbiter.Event) {
	for _, t := range [...]arbiter.Token{e.Session, e.Branch, e.Worktree, e.OldBranch, e.Other} {
		n.touch(at, t)
	}
	for _, p := range e.Paths {
		n.touch(at, p.Own)
	}
}

func (n *arbiterNames) touch(at gitlog.Millis, t arbiter.Token) {
	k := n.byToken[t]
	if k == nil {
		return
	}
	if k.used == 0 && at > 0 {
		n.unused--
	}
	k.used = max(k.used, at)
	if !k.kept {
		k.kept = true
		n.fresh = append(n.fresh, t)
	}
}

// unkept returns the names that are to be written to the file now.
func (n *arbiterNames) unkept() []arbiterName {
	out := make([]arbiterName, 0, len(n.fresh))
	for _, t := range n.fresh {
		out = append(out, n.record(t))
	}
	n.fresh = nil
	return out
}

// kept returns all names that are or belong in the file.
func (n *arbiterNames) kept() []arbiterName {
	var out []arbiterName
	for t, k := range n.byToken {
		if k.kept {
			out = append(out, n.record(t))
		}
	}
	return out
}

func (n *arbiterNames) record(t arbiter.Token) arbiterName {
	k := n.byToken[t]
	return arbiterName{Kind: k.kind, Name: []byte(k.name), Token: t[:], Used: k.used}
}

// add takes in names from the file.
func (n *arbiterNames) add(names []arbiterName) {
	for _, each := range names {
		if int(each.Kind) >= len(n.byName) || len(each.Token) != len(arbiter.Token{}) {
			continue
		}
		t := arbiter.Token(each.Token)
		if k := n.byToken[t]; k != nil && k.used == 0 {
			n.unused--
		}
		if each.Used == 0 {
			n.unused++
		}
		n.byToken[t] = &knownName{kind: each.Kind, name: string(each.Name), used: each.Used, kept: true}
		n.byName[each.Kind][string(each.Name)] = t
	}
}

// forget drops the names that nothing can ask about any more.
func (n *arbiterNames) forget(now gitlog.Millis) {
	n.drop(func(k *knownName) bool { return k.used+namesKept < now })
}

func (n *arbiterNames) drop(old func(*knownName) bool) {
	for t, k := range n.byToken {
		if old(k) && (k.kept || k.used == 0) {
			delete(n.byToken, t)
			if k.used == 0 {
				n.unused--
			}
		}
	}
	for kind := range n.byName {
		for name, t := range n.byName[kind] {
			if n.byToken[t] == nil {
				delete(n.byName[kind], name)
			}
		}
	}
}
