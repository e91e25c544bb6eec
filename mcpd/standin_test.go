package mcpd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
)

// standIn is a program in the place of an agent: it has hooks, as Claude Code has, is connected by its configuration, and does at each
// line that is typed to it what its script says. It runs in a process of its own, with the arguments of its command.
func standIn(args []string) {
	s := &stand{agent: "claude", session: fmt.Sprintf("5e551017-%d", os.Getpid())}
	if len(args) > 0 && args[0] == "as-codex" {
		s.standInForCodex(args)
		return
	}
	for i, arg := range args {
		switch arg {
		case "--mcp-config":
			s.connect(args[i+1])
		case "--resume":
			s.session = args[i+1]
			if strings.HasPrefix(s.session, "lost") {
				fmt.Println("no such session")
				return
			}
		}
	}
	fmt.Printf("%s is %s in %s %q\n", os.Getenv("KNOOT_AGENT"), s.session, s.cwd(), args)
	s.hook(socket.Hook{Event: "SessionStart", Source: "startup"})
	s.follow()
}

// follow does what is typed.
func (s *stand) follow() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if s.mute {
			fmt.Printf("heard %q\n", line)
			continue
		}
		if s.agent == "codex" && !s.begun {
			s.begun = true
			s.hook(socket.Hook{Event: "SessionStart", Source: "startup"})
		}
		asked := strings.TrimSuffix(strings.TrimPrefix(line, "\x1b[200~"), "\x1b[201~")
		s.hook(socket.Hook{Event: "UserPromptSubmit", Prompt: asked, PromptID: asked, Machine: asked == socket.Nudge})
		fmt.Printf("heard %q\n", line)
		switch {
		case line == "ask": // waits for its person
			s.hook(socket.Hook{Event: "PermissionRequest"})
			fmt.Println("asks")
			continue
		case line == "plan":
			s.call("plan-tasks", `"tasks":[{"id":"parse","goal":"parse dates","assignee":"bob"},{"id":"docs","goal":"say so","dependsOn":["parse"]}]`)
			s.call("dispatch-task", `"taskId":"parse"`)
		case asked == socket.Nudge:
			s.readMail()
		case line == "env":
			fmt.Printf("environment %q\n", os.Environ())
		}
		s.hook(socket.Hook{Event: "Stop", PromptID: line, Said: strings.TrimPrefix(line, "say ")})
		fmt.Println("rests")
	}
}

// standInForCodex is in the place of Codex: it wants what is pasted marked, connects before it is asked anything, and has its hooks say
// nothing before its first prompt. Nobody trusts the hooks of the agents eve and
// fay.
func (s *stand) standInForCodex(args []string) {
	s.agent, s.mute, s.authorization = "codex", slices.Contains([]string{"eve", "fay"}, os.Getenv("KNOOT_AGENT")), "Bearer "+os.Getenv(secretVariable)
	for _, arg := range args {
		if value, is := strings.CutPrefix(arg, "mcp_servers.knoot.url="); is {
			s.url = strings.Trim(value, `"`)
		}
	}
	fmt.Print("\x1b[?2004h")
	s.call("list-agents", "")
	s.follow()
}

// stand is the program's state.
type stand struct {
	agent, session, url, authorization string
	mute                               bool // its hooks do not run
	begun                              bool // of Codex: it was asked something
}

func (s *stand) cwd() string {
	dir, _ := os.Getwd()
	return dir
}

func (s *stand) connect(path string) {
	var config struct {
		MCPServers map[string]struct {
			URL     string
			Headers map[string]string
		}
	}
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(text, &config) != nil {
		panic(fmt.Sprint(err, string(text)))
	}
	s.url, s.authorization = config.MCPServers["knoot"].URL, config.MCPServers["knoot"].Headers["Authorization"]
}

func (s *stand) hook(h socket.Hook) {
	loc, err := socket.Locate(os.Getenv)
	if err != nil {
		panic(err)
	}
	h.Agent, h.Session, h.Cwd, h.Name = s.agent, s.session, s.cwd(), os.Getenv("KNOOT_AGENT")
	h.Places = []socket.Place{{Root: h.Cwd}}
	if resp, err := loc.Ask(context.Background(), &socket.Request{Op: "hook", Hook: &h}); err != nil || resp.Error != "" {
		fmt.Println("hook:", err, resp)
	} else if resp.Answer != nil && resp.Answer.Context != "" {
		fmt.Println(resp.Answer.Context)
	}
}

// call calls a tool, with arguments beside its id, and returns the result's text.
func (s *stand) call(tool, arguments string) string {
	if arguments != "" {
		arguments = "," + arguments
	}
	req, err := http.NewRequest("POST", s.url, bytes.NewReader([]byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"`+tool+`","arguments":{"agentId":"`+os.Getenv("KNOOT_AGENT")+`"`+arguments+`}}}`)))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", s.authorization)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	var got struct {
		Result struct{ Content []struct{ Text string } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || len(got.Result.Content) != 1 {
		panic(fmt.Sprint(tool, " ", resp.Status, " ", err))
	}
	fmt.Printf("%s: %s\n", tool, got.Result.Content[0].Text)
	return got.Result.Content[0].Text
}

// readMail reads what waits. Who is given a task does it; who hears that one is done says so of its own.
func (s *stand) readMail() {
	var mail []daemon.Message
	if err := json.Unmarshal([]byte(s.call("check-messages", "")), &mail); err != nil {
		panic(err)
	}
	for _, m := range mail {
		switch {
		case strings.Contains(m.Text, "parse dates"):
			s.call("send-message", `"to":"`+m.From+`","message":"parse is done"`)
		case m.Text == "parse is done":
			s.call("complete-task", `"taskId":"parse","outcome":"done"`)
		}
	}
}
