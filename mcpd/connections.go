package mcpd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
)

// maxListens is how many subscriptions of the newer protocol one agent has open; the oldest ends for one more.
const maxListens = 4

// connections are the agents' connections. A connection is an epoch: the session id that initialize gave out. The newest is the
// agent's, and one of the protocol without sessions is always the agent's: its secret says so.
type connections struct {
	mu     sync.Mutex
	agents map[string]*connection // guarded by mu: by agent
}

type connection struct {
	epoch  string // "": none that is known, as after the daemon's restart
	before string // that epoch took its place
	calls  int    // of tools, in epoch
	stream *stream
	listen []*stream // oldest first
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
	of.before, of.epoch, of.calls = of.epoch, hex.EncodeToString(id), 0
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
		of.epoch, of.calls = epoch, 0
	}
	return of.epoch == epoch
}

// called counts a call of a tool.
func (c *connections) called(agent string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(agent).calls++
}

// finish ends an epoch, if it is the agent's. If it called nothing it was only looking (`claude mcp list`), and the one before is the
// agent's again.
func (c *connections) finish(agent, epoch string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of(agent)
	if of.epoch != epoch || epoch == "" {
		return
	}
	of.epoch = ""
	if of.calls == 0 {
		of.epoch = of.before
	}
	of.before, of.calls = "", 0
	of.endStream()
}

// forget ends an agent's streams, and drops what is known of its connection.
func (c *connections) forget(agent string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of(agent)
	of.endStream()
	for _, each := range of.listen {
		each.end()
	}
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

// listens is open for a subscription.
func (c *connections) listens(ctx context.Context, agent string) (_ context.Context, closed func()) {
	ctx, cancel := context.WithCancel(ctx)
	now := &stream{cancel}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of(agent)
	if of.listen = append(of.listen, now); len(of.listen) > maxListens {
		of.listen[0].end()
		of.listen = of.listen[1:]
	}
	return ctx, func() {
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, each := range of.listen {
			if each == now {
				of.listen = append(of.listen[:i:i], of.listen[i+1:]...)
				break
			}
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
