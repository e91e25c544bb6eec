package mcpd

import (
	"bytes"
	"net/http"
	"strings"
)

// misreadWriter has what the SDK refuses in plain text, because it knows no such method or misses something, said as the protocol has it:
// clients take anything else for a server that is broken. Other answers go through.
type misreadWriter struct {
	http.ResponseWriter
	message peeked
	newer   bool

	held bytes.Buffer // a refusal that is not sent yet
	hold bool
}

// Unwrap is for http.ResponseController.
func (w *misreadWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *misreadWriter) WriteHeader(status int) {
	if w.hold = status == http.StatusBadRequest && strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain"); !w.hold {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *misreadWriter) Write(p []byte) (int, error) {
	if w.hold {
		return w.held.Write(p)
	}
	return w.ResponseWriter.Write(p)
}

// finish sends what was held back.
func (w *misreadWriter) finish() {
	if !w.hold {
		return
	}
	why := strings.TrimSpace(w.held.String())
	code, status := 0, http.StatusOK
	switch {
	case strings.HasSuffix(why, " unsupported"):
		code = -32601
		if w.newer {
			status = http.StatusNotFound
		}
	case strings.HasPrefix(why, "invalid request: "):
		code = -32602
		if w.newer {
			status = http.StatusBadRequest
		}
	}
	switch {
	case code == 0 || w.message.Method == "":
		w.ResponseWriter.WriteHeader(http.StatusBadRequest)
		_, _ = w.ResponseWriter.Write(w.held.Bytes())
	case len(w.message.ID) == 0: // nobody waits for an answer
		w.Header().Del("Content-Type")
		w.ResponseWriter.WriteHeader(http.StatusAccepted)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Del("Content-Length")
		w.ResponseWriter.WriteHeader(status)
		body, _ := encode(rpcAnswer{Version: "2.0", ID: w.message.ID, Error: rpcError{Code: code, Message: why}})
		_, _ = w.ResponseWriter.Write(body)
	}
}
