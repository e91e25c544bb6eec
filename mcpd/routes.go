package mcpd

import (
	"encoding/json"
	"net/http"

	"knoot.dev/knoot/daemon/socket"
)

// handler is what is served at an address.
func (s *Server) handler(address string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", s.serveMCP)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close") // nobody whom this server does not know keeps one
		writeJSON(w, health{"ok"})
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		writeJSON(w, served{Name: "knoot", Version: socket.Version, Served: []string{"/mcp", "/health", "/api/v1/agent/status", "/api/v1/agent/register"}})
	})
	mux.HandleFunc("GET /api/v1/agent/status", s.serveStatus)
	mux.HandleFunc("POST /api/v1/agent/status", s.serveStatusEvent)
	mux.HandleFunc("GET /api/v1/agent/terminal", s.serveTerminal)
	mux.HandleFunc("POST /api/v1/agent/terminal", s.serveTerminalInput)
	mux.HandleFunc("POST /api/v1/agent/register", s.serveRegisterEvent)
	return s.guard(address, mux)
}

// health is the answer to GET /health.
type health struct {
	Status string `json:"status"` // ok
}

// served is the answer to GET /.
type served struct {
	Name    string   `json:"name"`
	Version string   `json:"version"`
	Served  []string `json:"served"` // paths
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // whoever asked has left
}
