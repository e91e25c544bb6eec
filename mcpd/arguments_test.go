package mcpd

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// What models send for what is asked.
func TestArgumentsThatHaveOneMeaning(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`"x"`: "x", `5`: "5", `1e3`: "1e3", `true`: "true", `null`: "", `""`: "", `[1]`: "error", `{}`: "error"} {
		got, err := arguments{"a": json.RawMessage(text)}.text("a")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("as a text %s is %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{`true`: "true", `"True"`: "true", `1`: "true", `"0"`: "false", `false`: "false", `null`: "false", `""`: "false", `"maybe"`: "error", `[]`: "error"} {
		got, err := arguments{"a": json.RawMessage(text)}.truth("a")
		if said := map[bool]string{true: "error", false: fmt.Sprint(got)}[err != nil]; said != want {
			t.Errorf("as a truth %s is %q, want %q", text, said, want)
		}
	}
	for text, want := range map[string][]string{`["a","b"]`: {"a", "b"}, `"[\"a\",\"b\"]"`: {"a", "b"}, `"a"`: {"a"}, `[1,true]`: {"1", "true"}, `null`: nil, `""`: nil, `[]`: nil,
		`"[not json"`: {"[not json"}, `{}`: {"error"}, `[["a"]]`: {"error"}} {
		got, err := arguments{"a": json.RawMessage(text)}.texts("a")
		if err != nil {
			got = []string{"error"}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("as texts %s is %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]int{`[{"b":1}]`: 1, `{"b":1}`: 1, `"[{\"b\":1},{\"b\":1}]"`: 2, `["{\"b\":1}"]`: 1, `null`: 0, `[]`: 0, `"x"`: -1, `[1]`: -1, `[null]`: -1} {
		got, err := arguments{"a": json.RawMessage(text)}.objects("a")
		n := len(got)
		if err != nil {
			n = -1
		}
		if n != want {
			t.Errorf("as objects %s is %d, want %d", text, n, want)
		}
	}
	if args, err := readArguments(json.RawMessage(`"{\"a\":1}"`)); err != nil || !args.has("a") {
		t.Errorf("arguments in a text: %v, %v", args, err)
	}
	for _, text := range []string{"", "null"} {
		if args, err := readArguments(json.RawMessage(text)); err != nil || args == nil {
			t.Errorf("no arguments: %v, %v", args, err)
		}
	}
}

func FuzzArguments(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"2",null]}`, `"{\"a\":{}}"`, `null`, `{"a":"[{\"b\":\"c\"}]"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		args, err := readArguments(raw)
		if err != nil {
			return
		}
		texts, terr := args.texts("a")
		if !args.has("a") && (terr != nil || texts != nil) {
			t.Fatalf("an absent list is %q, %v", texts, terr)
		}
		if _, err := args.text("a"); err == nil && args.has("a") {
			if _, err := args.texts("a"); err != nil && !strings.HasPrefix(strings.TrimSpace(string(unwrapped(args["a"]))), "{") && !strings.HasPrefix(strings.TrimSpace(string(unwrapped(args["a"]))), "[") {
				t.Fatalf("a text is no list of one: %v", err)
			}
		}
		_, _ = args.objects("a")
		_, _ = args.truth("a")
	})
}

// listed asks for the tools as a client does.
func (a *member) listed() (body string, tools []map[string]any) {
	a.m.t.Helper()
	answer := a.post(listTools)
	var got struct {
		Result struct{ Tools []map[string]any }
	}
	if err := json.Unmarshal([]byte(answer.body), &got); err != nil {
		a.m.t.Fatalf("tools/list: %v, %+v", err, answer)
	}
	return answer.body, got.Result.Tools
}

func TestListOfTools(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	body, tools := alice.listed()
	if len(body) > 14_000 {
		t.Errorf("tools/list has %d bytes, and may have 14,000: every agent pays for them", len(body))
	}
	t.Logf("tools/list: %d tools, %d bytes", len(tools), len(body))
	for _, tool := range tools {
		hints, _ := tool["annotations"].(map[string]any)
		for _, hint := range []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} {
			if _, is := hints[hint].(bool); !is {
				t.Errorf("%v says nothing of %s: %v", tool["name"], hint, hints)
			}
		}
		if name := tool["name"].(string); len("mcp__knoot__"+name) > 64 {
			t.Errorf("%s is too long a name", name)
		}
		if about, _ := tool["description"].(string); about == "" || len(about) > 2048 {
			t.Errorf("%v is described in %d bytes", tool["name"], len(about))
		}
		if _, has := tool["outputSchema"]; has {
			t.Errorf("%v has an output schema, and its result is a text", tool["name"])
		}
	}
	if len(instructions) > 2048 {
		t.Errorf("the instructions have %d bytes", len(instructions))
	}
	other := m.agent("bob", "codex", m.repo)
	if again, _ := other.listed(); again != body {
		t.Error("the list varies by agent")
	}
	answer := alice.initialize().post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if !strings.Contains(answer.body, `"capabilities":{"tools":{}}`) {
		t.Errorf("initialize: %s", answer.body)
	}
}

// The arguments of each tool, as the clients see them: those that may be absent end in "?".
func TestArgumentsOfTools(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	_, tools := m.members("alice")[0].listed()
	want := map[string]string{
		"register-agent": "agentId sessionId?", "list-agents": "agentId", "describe-agents": "agentId tags?", "list-repos": "", "list-worktrees": "repo",
		"send-message": "agentId message to urgent?", "check-messages": "agentId peek?", "broadcast-message": "agentId message",
		"create-agent": "agentId companion? cost? description? folder? name? tags? template? type?", "close-agent": "agentId target",
		"create-worktree": "agentId base? branch repo", "set-status": "agentId status", "display-markdown": "agentId expanded? path",
		"view-mermaid": "agentId diagram title?", "show-checklist": "agentId items title", "get-checklist": "agentId", "plan-tasks": "agentId tasks",
		"dispatch-task": "agentId taskId", "complete-task": "agentId note? outcome taskId", "task-status": "agentId", "remember": "agentId name paths? text",
		"recall": "agentId path? query?", "why": "agentId path", "who": "agentId", "plan": "agentId decided? text?", "claim": "agentId paths", "release": "agentId paths",
	}
	for _, tool := range tools {
		schema, _ := tool["inputSchema"].(map[string]any)
		properties, _ := schema["properties"].(map[string]any)
		required, _ := schema["required"].([]any)
		var got []string
		for name := range properties {
			if !slices.Contains(required, any(name)) {
				name += "?"
			}
			got = append(got, name)
		}
		slices.Sort(got)
		name := tool["name"].(string)
		if said, listed := want[name]; !listed || strings.Join(got, " ") != said {
			t.Errorf("%s takes %q, want %q", name, got, said)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
}

// Every argument that is required is named where it is missing.
func TestAMissingArgumentIsNamed(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	alice := m.members("alice")[0]
	for _, tool := range allTools() {
		given := args{}
		for _, a := range tool.takes {
			name, optional := a.is()
			if optional {
				continue
			}
			alice.refused(tool.name, given, fmt.Sprintf("missing required argument %q", name))
			given[name] = "x"
		}
	}
	if got, err := alice.raw("send-message", `"no object"`); err != nil || !got.Error || !strings.Contains(got.Text, "JSON object") {
		t.Errorf("arguments that are none: %v, %+v", err, got)
	}
	answer := alice.post(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"no-such-tool","arguments":{}}}`)
	if !strings.Contains(answer.body, "-32602") {
		t.Errorf("a tool that is not there: %+v", answer)
	}
}

func TestGroupsOfTools(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.stop()
	m.Write(m.KnootHome+"/config.toml", "[mcp]\nport = 0\ntools = [\"memory\", \"tasks\"]\n")
	m.start()
	alice := m.members("alice")[0]
	_, tools := alice.listed()
	names := map[string]bool{}
	for _, tool := range tools {
		names[tool["name"].(string)] = true
	}
	for _, tool := range allTools() {
		if want := tool.group == memory || tool.group == tasks; names[tool.name] != want {
			t.Errorf("%s, of the group %s, is listed: %v", tool.name, tool.group, names[tool.name])
		}
	}
}
