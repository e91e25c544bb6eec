package mcpd

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"time"
)

// sign is a comment of the event stream, which says nothing.
var sign = []byte(": knoot\n\n")

// streamWriter writes an answer, and where that is an event stream, signs of life between its events: clients take one that is silent
// for minutes for dead. It gives each write its own deadline.
type streamWriter struct {
	http.ResponseWriter
	control *http.ResponseController

	mu       sync.Mutex
	timer    *time.Timer // guarded by mu; nil: this is no stream, or it has ended
	every    time.Duration
	between  bool // guarded by mu: what was written last was the end of an event
	finished bool // guarded by mu
}

func newStreamWriter(w http.ResponseWriter, every time.Duration) *streamWriter {
	return &streamWriter{ResponseWriter: w, control: http.NewResponseController(w), every: every, between: true}
}

// Unwrap is for http.ResponseController.
func (w *streamWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *streamWriter) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begin()
	w.ResponseWriter.WriteHeader(status)
}

// begin starts the signs if this is a stream. mu is held.
func (w *streamWriter) begin() {
	if w.timer == nil && !w.finished && strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
		w.timer = time.AfterFunc(w.every, w.live)
	}
}

func (w *streamWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begin()
	w.between = bytes.HasSuffix(p, []byte("\n\n"))
	_ = w.control.SetWriteDeadline(time.Now().Add(answerTime))
	return w.ResponseWriter.Write(p)
}

// Flush sends what was written.
func (w *streamWriter) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.control.Flush()
}

// live writes a sign.
func (w *streamWriter) live() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finished {
		return
	}
	w.timer.Reset(w.every)
	if !w.between {
		return
	}
	_ = w.control.SetWriteDeadline(time.Now().Add(answerTime))
	if _, err := w.ResponseWriter.Write(sign); err == nil {
		_ = w.control.Flush()
	}
}

// finish ends the signs: nothing is written once it has returned.
func (w *streamWriter) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finished = true
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}
