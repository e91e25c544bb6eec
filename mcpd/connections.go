package mcpd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"sync"
)

// maxBefore is how many epochs are remembered whose place was taken by one that only looks so far.
const maxBefore = 8

// connections are the agents' connections. A connection is an epoch: the session id that initialize gave out. The newest is the
// agent's, and one of the protocol without sessions is always the agent's: its secret says so.
type connections struct {
	mu     sync.Mutex
	agents map[string]*connection // guarded by mu: by agent
}

type connection struct {
	epoch string // "": none that is known, as after the daemon's restart
	// before are those whose place epoch took, and one another, the newest last. Once a tool is called in epoch they are out.
	before []string
	stream *stream
}

// stream is an answer that goes on until it is ended.
type stream struct{ end context.CancelFunc }

func newConnections() connections { return connections{agents: map[string]*connection{}} }

// of returns an agent's connection. mu is held.
func (c *connections) of(agent string) *connection {
	if c.agents[agent] == nil {
		c.agents[agent] = &connection{}
	}
	return c.agents[agent]
}

// begin makes a new epoch for an agent, in place of the one before, whose stream ends.
func (c *connections) begin(agent string) (epoch string) {
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of(agent)
	if of.epoch != "" {
		of.before = append(of.before, of.epoch)
		of.before = slices.Delete(of.before, 0, max(0, len(of.before)-maxBefore))
	}
	of.epoch = hex.EncodeToString(id)
	of.endStream()
	return of.epoch
}

// adopt reports whether an epoch is the agent's. Where none is known it is from now on: the daemon was started again, and the
// agent does not know.
func (c *connections) adopt(agent, epoch string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of(agent)
	if of.epoch == "" {
		of.epoch = epoch
	}
	return of.epoch == epoch
}

// called takes note that a tool is called in an epoch.
func (c *connections) called(agent, epoch string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of := c.of(agent); of.epoch == epoch {
		of.before = nil
	}
}

// finish ends an epoch. If it was the agent's and called nothing it was only looking (`claude mcp list`), and the one before is the
// agent's again.
func (c *connections) finish(agent, epoch string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of(agent)
	if of.epoch != epoch || epoch == "" {
		of.before = slices.DeleteFunc(of.before, func(each string) bool { return each == epoch })
		return
	}
	of.epoch = ""
	if last := len(of.before) - 1; last >= 0 {
		of.epoch, of.before = of.before[last], of.before[:last]
	}
	of.endStream()
}

// forget ends an agent's stream, and drops what is known of its connection.
func (c *connections) forget(agent string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(agent).endStream()
	delete(c.agents, agent)
}

// open makes a stream the agent's, in place of the one before; whoever ends it calls closed.
func (c *connections) open(ctx context.Context, agent string) (_ context.Context, closed func()) {
	ctx, cancel := context.WithCancel(ctx)
	now := &stream{cancel}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of(agent)
	of.endStream()
	of.stream = now
	return ctx, func() {
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		if of.stream == now {
			of.stream = nil
		}
	}
}

// endStream ends the stream of GET. mu is held.
func (of *connection) endStream() {
	if of.stream != nil {
		of.stream.end()
		of.stream = nil
	}
}
