package daemon

import (
	"encoding/json"

	"knoot.dev/knoot/gitlog"
)

// audited says whether an audit log has events of a kind. The others are of the moment.
func audited(kind gitlog.EntryKind) bool {
	switch kind {
	case gitlog.ClaimRenewed, gitlog.Message, gitlog.MemoryPublished:
		return false
	}
	return true
}

// sessionDetail is what an arbiter's SessionStarted says of a session beside its tokens.
type sessionDetail struct {
	Owner   string `json:"owner,omitempty"` // the address of its person
	Name    string `json:"name,omitempty"`  // of the agent (KNOOT_AGENT)
	Private bool   `json:"private,omitempty"`
}

func (s sessionDetail) encode() []byte {
	text, err := json.Marshal(s)
	if err != nil {
		return nil // texts and a truth always encode
	}
	return text
}

func decodeSessionDetail(text []byte) (s sessionDetail) {
	_ = json.Unmarshal(text, &s) // one that says nothing is that of a session of which nothing is known
	return s
}

// lodger is what an arbitration has to know of a session beside its claims. The arbitration's lock guards it.
type lodger struct {
	calls map[callKey]*openCall
}

// callKey names a tool call within a session.
type callKey struct {
	Subagent string `json:"subagent,omitempty"`
	ToolUse  string `json:"tool_use,omitempty"`
}

// openCall is a tool call that has begun and of whose end nothing is known.
type openCall struct {
	began gitlog.Millis
	took  [][]byte // claims that it took
}

// callRecord says that a call began, or ended.
type callRecord struct {
	Session sessionKey `json:"session"`
	callKey
	Began gitlog.Millis `json:"began,omitempty"`
	Took  [][]byte      `json:"took,omitempty"`
	Ended bool          `json:"ended,omitempty"`
}

func (a *arbitration) lodger(key sessionKey) *lodger {
	l := a.lodgers[key]
	if l == nil {
		l = &lodger{calls: map[callKey]*openCall{}}
		a.lodgers[key] = l
	}
	return l
}

func (l *lodger) apply(r callRecord) {
	if r.Ended {
		delete(l.calls, r.callKey)
		return
	}
	l.calls[r.callKey] = &openCall{began: r.Began, took: r.Took}
}

func (l *lodger) records(key sessionKey) (out []callRecord) {
	for k, c := range l.calls {
		out = append(out, callRecord{Session: key, callKey: k, Began: c.began, Took: c.took})
	}
	return out
}
