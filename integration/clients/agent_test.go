package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"knoot.dev/knoot/integration/agents"
)

// agentClients are the real coding agents, which package agents runs offline.
func agentClients(t testing.TB) (both []client) {
	for _, each := range []struct {
		find     func() (agents.Agent, error)
		protocol string
	}{{agents.FindClaude, sessionless}, {agents.FindCodex, "2025-06-18"}} {
		agent, missing := each.find()
		version := "-"
		if missing == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			var err error
			if version, err = agent.Version(ctx); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
		both = append(both, client{name: agent.Name(), version: version, protocol: each.protocol, missing: missing, open: openAgent(agent),
			stays: true, silent: each.protocol == sessionless, unmarked: agent.Hooks() == "codex"})
	}
	return both
}

// agentRun is one run of an agent, whose model says what the test says next.
type agentRun struct {
	agent agents.Agent
	ctx   context.Context
	model *agents.Model
	next  []agents.Item // what is said at the turn that waits
	asked chan int      // turns that wait
	said  chan struct{} // lets one go on
	quit  context.CancelFunc
	ended chan error
	over  bool
}

// server is how both agents' configurations call knoot.
const server = "knoot"

func openAgent(agent agents.Agent) func(context.Context, *endpoint) (session, error) {
	return func(ctx context.Context, e *endpoint) (session, error) {
		r := &agentRun{agent: agent, asked: make(chan int), said: make(chan struct{}), ended: make(chan error, 1)}
		r.ctx, r.quit = context.WithCancel(ctx)
		const turns = 30
		script := make(agents.Script, turns)
		for i := range script {
			script[i] = make([]agents.Item, 1)
		}
		var err error
		if r.model, err = agents.NewModel(script); err != nil {
			r.quit()
			return nil, err
		}
		r.model.Asked(func(turn int) {
			select {
			case r.asked <- turn:
			case <-r.ctx.Done():
				return
			}
			select {
			case <-r.said:
				copy(script[min(turn, turns)-1], r.next)
			case <-r.ctx.Done():
			}
		})
		home := e.TempDir()
		if err := configure(agent, home, r.model.URL(), e); err != nil {
			r.ended <- nil
			return nil, errors.Join(err, r.close())
		}
		go func() {
			// Its hooks are off: they are tried elsewhere.
			_, err := agent.Run(r.ctx, agents.Job{Model: r.model, Home: home, Dir: e.world.dir, Prompt: "find out whose the parser is", OwnTrust: true, Env: []string{"KNOOT=off"}})
			r.ended <- err
		}()
		if err := r.await(); err != nil {
			return nil, errors.Join(err, r.close())
		}
		return r, nil
	}
}

// configure writes what `knoot mcp config` has agents write.
func configure(agent agents.Agent, home, model string, e *endpoint) error {
	if codex, is := agent.(agents.Codex); is {
		if err := codex.Configure(home, model, e.world.dir); err != nil {
			return err
		}
		config, err := os.OpenFile(filepath.Join(home, ".codex", "config.toml"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		fmt.Fprintf(config, "[mcp_servers.%s]\nurl = %q\nhttp_headers = { Authorization = %q }\ndefault_tools_approval_mode = \"approve\"\n", server, e.URL, e.Headers["Authorization"])
		return config.Close()
	}
	type object = map[string]any
	for file, content := range map[string]object{
		filepath.Join(home, ".claude.json"):             {"projects": object{e.world.dir: object{"mcpServers": object{server: object{"type": "http", "url": e.URL, "headers": e.Headers}}}}},
		filepath.Join(home, ".claude", "settings.json"): {"permissions": object{"allow": []string{"mcp__" + server}}},
	} {
		text, err := json.Marshal(content)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// await waits until the model is asked what to do next.
func (r *agentRun) await() error {
	select {
	case <-r.asked:
		return nil
	case err := <-r.ended:
		r.ended <- nil // for close
		return fmt.Errorf("its run ended: %v", err)
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// say has the model answer the turn that waits.
func (r *agentRun) say(item agents.Item) error {
	r.next = []agents.Item{item}
	select {
	case r.said <- struct{}{}:
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

func (r *agentRun) codex() bool {
	_, is := r.agent.(agents.Codex)
	return is
}

// tools are those that the model is told of (Claude Code), or finds when it looks for them by name (Codex).
func (r *agentRun) tools() (names []string, err error) {
	if r.codex() {
		if err := r.turn(agents.Item{Tool: "tool_search", Input: map[string]any{"query": strings.Join(allTools, " "), "limit": 2 * len(allTools)}}); err != nil {
			return nil, err
		}
		type tool struct {
			Name  string
			Tools []tool
		}
		var request struct{ Input []tool }
		if err := r.last(&request); err != nil {
			return nil, err
		}
		for _, space := range request.Input[len(request.Input)-1].Tools {
			for _, each := range space.Tools {
				if space.Name == "mcp__"+server {
					names = append(names, strings.ReplaceAll(each.Name, "_", "-"))
				}
			}
		}
		return names, nil
	}
	turns := r.model.Turns()
	seen := map[string]bool{}
	for _, name := range regexp.MustCompile(`mcp__`+server+`__([a-z-]+)`).FindAllSubmatch(turns[len(turns)-1].Body, -1) {
		seen[string(name[1])] = true
	}
	return slices.Collect(maps.Keys(seen)), nil
}

// last is the body of the request that the model was asked last.
func (r *agentRun) last(body any) error {
	turns := r.model.Turns()
	return json.Unmarshal(turns[len(turns)-1].Body, body)
}

// turn has the model say something, and waits until it is asked again.
func (r *agentRun) turn(item agents.Item) error {
	if err := r.say(item); err != nil {
		return err
	}
	return r.await()
}

// call has the model call a tool. Codex does not tell its model which answers are failures.
func (r *agentRun) call(tool, arguments string) (answer, error) {
	item := agents.Item{Tool: "mcp__" + server + "__" + tool, Input: json.RawMessage(arguments)}
	if r.codex() {
		item = agents.Item{Namespace: "mcp__" + server, Tool: strings.ReplaceAll(tool, "-", "_"), Input: json.RawMessage(arguments)}
	}
	said := len(r.model.Turns())
	if err := r.turn(item); err != nil {
		return answer{}, err
	}
	type part struct {
		Text    string
		ToolUse string          `json:"tool_use_id"` // of the Messages API's result
		Content json.RawMessage // a text, or several
		IsError bool            `json:"is_error"`
		Call    string          `json:"call_id"` // of the Responses API's
		Output  json.RawMessage // the same; none where this is the call
	}
	var request struct {
		Messages []struct{ Content json.RawMessage }
		Input    []part
	}
	if err := r.last(&request); err != nil {
		return answer{}, err
	}
	parts := request.Input
	for _, message := range request.Messages {
		var some []part
		_ = json.Unmarshal(message.Content, &some) // a text has no results
		parts = append(parts, some...)
	}
	for _, p := range parts {
		text := append(p.Content, p.Output...)
		if p.ToolUse != fmt.Sprintf("toolu_%d_0", said) && (p.Call != fmt.Sprintf("call_%d_0", said) || p.Output == nil) {
			continue
		}
		var texts []part
		if json.Unmarshal(text, &texts) == nil && len(texts) > 0 {
			return answer{texts[len(texts)-1].Text, p.IsError}, nil
		}
		var one string
		err := json.Unmarshal(text, &one)
		return answer{one, p.IsError}, err
	}
	return answer{}, errors.New("the model is shown no result")
}

func (*agentRun) id() (string, error) { return "", nil }

func (*agentRun) listen() error { return nil }

func (r *agentRun) close() error {
	if r.over {
		return nil
	}
	r.over = true
	defer r.model.Close()
	defer r.quit()
	r.next = []agents.Item{{Text: "done"}}
	for said := r.said; ; said = nil {
		select {
		case said <- struct{}{}: // once
		case err := <-r.ended:
			return err
		}
	}
}
