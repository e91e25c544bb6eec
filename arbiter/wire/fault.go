package wire

import (
	"fmt"

	"knoot.dev/knoot/gitlog"
)

// Code says what went wrong, in faults and where a connection or stream is closed. A daemon turns each into "allowed".
type Code uint64

const (
	Malformed         Code = 1  // bytes that are no message: the connection is closed
	VersionTooOld     Code = 2  // this relay no longer speaks the client's version
	UnknownRequest    Code = 3  // a request from a newer version
	NotAdmitted       Code = 4  // the roster does not let this device in, or not yet
	Removed           Code = 5  // the roster took this device out: the connection is closed
	TeamNotServed     Code = 6  // the relay serves other teams only
	OperatorToken     Code = 7  // the team's first connection needs the operator's token
	RosterWrong       Code = 8  // a roster entry is not right, or is another team's
	RosterStale       Code = 9  // tokens have changed: fetch the roster, Fault.Head or newer, and ask again
	UnknownRepository Code = 10 // not of this team, or not opened on this connection
	Grace             Code = 11 // the relay lost its state: without a grant it grants nothing for Fault.After
	Busy              Code = 12 // too many requests at once
	SlowDown          Code = 13 // too many requests in a time, or roster entries: ask again after Fault.After
	TooManyClaims     Code = 14 // the device holds as many as one may
	TooMany           Code = 15 // connections, repositories or teams
	Unavailable       Code = 16 // the relay cannot write its log now
	Draining          Code = 17 // the relay ends: come back
	NotYours          Code = 18 // a session of another device
	SlowReader        Code = 19 // the client does not read what it is sent
	TooLarge          Code = 20 // a request that would make more than the relay keeps at once
)

var codeNames = map[Code]string{
	Malformed: "malformed", VersionTooOld: "version too old", UnknownRequest: "unknown request", NotAdmitted: "not admitted",
	Removed: "removed", TeamNotServed: "team not served", OperatorToken: "operator's token wanted", RosterWrong: "roster wrong",
	RosterStale: "roster stale", UnknownRepository: "unknown repository", Grace: "grace", Busy: "busy", SlowDown: "slow down",
	TooManyClaims: "too many claims", TooMany: "too many", Unavailable: "unavailable", Draining: "draining", NotYours: "not yours",
	SlowReader: "slow reader", TooLarge: "too large",
}

// String is the code's name in logs and metrics.
func (c Code) String() string {
	if name, ok := codeNames[c]; ok {
		return name
	}
	return fmt.Sprintf("code %d", uint64(c))
}

// Codes lists the codes that this version knows, by number.
func Codes() []Code {
	codes := make([]Code, 0, len(codeNames))
	for c := Malformed; c <= TooLarge; c++ {
		codes = append(codes, c)
	}
	return codes
}

// Fault is the answer to a request that was not carried out. It is an error.
type Fault struct {
	Code  Code
	Text  string            // a sentence for the log
	After gitlog.Millis     // ask again after so long; zero: not said
	Head  gitlog.RosterHead // of RosterStale: what the relay has; else zero
}

func (f *Fault) Error() string {
	if f.Text == "" {
		return "the relay answers: " + f.Code.String()
	}
	return "the relay answers: " + f.Text
}

func (*Fault) kind() uint64 { return kindFault }
func (f *Fault) encode(m *mapEncoder) {
	m.key(1).uint(uint64(f.Code))
	m.text(2, f.Text)
	m.uint(3, uint64(f.After))
	if f.Head != (gitlog.RosterHead{}) {
		m.key(4).rosterHead(f.Head)
	}
}

func decodeFault(d *decoder) Message {
	f := &Fault{}
	d.fields(keys(1), func(key uint64) bool {
		switch key {
		case 1:
			f.Code = Code(d.some())
		case 2:
			f.Text = d.someText(maxFault)
		case 3:
			f.After = d.someMillis()
		case 4:
			f.Head = d.rosterHead()
		default:
			return false
		}
		return true
	})
	return f
}
