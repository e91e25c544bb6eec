package relay

import (
	"container/list"
	"io"
	"sync"
)

// lobby is who came and has shown nothing yet. Where there are more than it holds the one that has been there longest goes: who is in
// earnest stays a moment, so that however many come and say nothing, they keep nobody else out.
type lobby struct {
	most int

	mu     sync.Mutex
	guests list.List // guarded by mu; of io.Closer, the oldest first
}

// enter lets somebody in. over says that they have shown who they are, or are gone; it may be called more than once. Who has to go is
// closed.
func (l *lobby) enter(guest io.Closer) (over func()) {
	l.mu.Lock()
	at := l.guests.PushBack(guest)
	var longest io.Closer
	if l.guests.Len() > l.most {
		longest = l.guests.Remove(l.guests.Front()).(io.Closer)
	}
	l.mu.Unlock()
	if longest != nil {
		_ = longest.Close()
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.guests.Remove(at) // nothing where it is not in the list any more
	}
}

// closing calls a function as a Closer.
type closing func()

func (f closing) Close() error { f(); return nil }
