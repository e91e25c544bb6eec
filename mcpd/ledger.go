package mcpd

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"knoot.dev/knoot/daemon"
)

const (
	// ledgerName is the file of what must not be forgotten, in the daemon's state.
	ledgerName = "coordination"
	// ledgerRewrite is the least size at which it is written anew.
	ledgerRewrite = 4 << 20
	// tokenName is the file of the person's secret, in their ~/.knoot.
	tokenName = "mcp.token"
)

// record is a change in the ledger. Each part takes the place of what was kept of the same agent before.
type record struct {
	Agent *entry       `json:"agent,omitempty"`
	Seen  *seenRecord  `json:"seen,omitempty"`
	Graph *graphRecord `json:"graph,omitempty"`
	Board *board       `json:"board,omitempty"`
	// Closed are agents that are no more, with all that was theirs.
	Closed []string `json:"closed,omitempty"`
}

// seenRecord is what was seen of an agent.
type seenRecord struct {
	ID string `json:"id"`
	seen
}

// graphRecord is an agent's graph.
type graphRecord struct {
	Owner string `json:"owner"`
	Tasks []Task `json:"tasks"`
}

var errClosed = errors.New("the daemon ends; try again in a moment")

// keep writes records to the ledger. writing is held.
func (s *Server) keep(records ...*record) error {
	if s.ledger == nil {
		return errClosed
	}
	return s.ledger.Append(records...)
}

// load reads what an earlier daemon kept, and the person's secret.
func (s *Server) load() {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.ledger != nil {
		return
	}
	ledger, err := daemon.OpenLedger(s.host, ledgerName, func(r *record) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.apply(r)
	})
	if err != nil {
		s.host.Log().Error("what is known of agents cannot be read", "error", err)
		return
	}
	s.ledger = ledger
	s.mu.Lock()
	for _, a := range s.agents {
		if a.Terminal { // its terminal ended with the daemon before this one
			a.State, a.Registered = deactivated, false
		}
	}
	s.mu.Unlock()
	person, err := personToken(filepath.Join(s.host.Home(), tokenName))
	if err != nil {
		s.host.Log().Error("scripts have no secret", "error", err)
	}
	s.mu.Lock()
	s.person = person
	s.mu.Unlock()
}

// flush keeps what was seen of agents lately, and shrinks a ledger that has grown.
func (s *Server) flush() {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.ledger == nil {
		return
	}
	if s.ledger.Size() >= max(ledgerRewrite, 2*s.shrunk) {
		s.rewrite()
		return
	}
	s.mu.Lock()
	records := s.seenRecords(false)
	s.mu.Unlock()
	if len(records) == 0 {
		return
	}
	if err := s.ledger.Append(records...); err != nil {
		s.host.Log().Error("what is known of agents is not kept", "error", err)
		s.again(records)
	}
}

// rewrite puts what is so in the place of what became of it. writing is held.
func (s *Server) rewrite() {
	s.mu.Lock()
	var records []*record
	for _, id := range slices.Sorted(maps.Keys(s.agents)) {
		copied := s.agents[id].entry
		records = append(records, &record{Agent: &copied})
		if g := s.graphs[id]; g != nil {
			records = append(records, &record{Graph: &graphRecord{Owner: id, Tasks: g.tasks}})
		}
		if b := s.boards[id]; b != nil {
			records = append(records, &record{Board: b})
		}
	}
	records = append(records, s.seenRecords(true)...)
	s.mu.Unlock()
	if err := s.ledger.Rewrite(records); err != nil {
		s.host.Log().Error("what is known of agents cannot be written anew", "error", err)
		s.again(records)
		return
	}
	s.shrunk = s.ledger.Size()
}

// again has the next flush keep what was seen, which could not be written.
func (s *Server) again(records []*record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		if r.Seen == nil {
			continue
		}
		if a := s.agents[r.Seen.ID]; a != nil {
			a.changed = true
		}
	}
}

// unload closes the ledger, and forgets what load reads again.
func (s *Server) unload() {
	s.flush()
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.ledger == nil {
		return
	}
	if err := s.ledger.Close(); err != nil {
		s.host.Log().Error("what is known of agents is not kept", "error", err)
	}
	s.ledger = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.agents)
	clear(s.visits)
	clear(s.bound)
	clear(s.graphs)
	clear(s.boards)
}

// personToken reads the person's secret, and draws one where there is none. One that others could read is no secret any more.
func personToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err == nil {
		info, serr := os.Stat(path)
		token := strings.TrimSpace(string(text))
		if serr == nil && info.Mode().Perm()&0o077 == 0 && len(token) >= 32 {
			return token, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cannot read %s: %w", path, err)
	}
	token := newSecret()
	return token, writeSecret(path, token+"\n")
}

// writeSecret writes a file that nobody else may read, whole or not at all.
func writeSecret(path, text string) error {
	fresh := path + ".new"
	err := os.WriteFile(fresh, []byte(text), 0o600)
	if err == nil {
		err = os.Chmod(fresh, 0o600) // one that was left there may have had another mode
	}
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}
