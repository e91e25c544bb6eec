package hook

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// drive loads the plugin as opencode does and has a session of one prompt, some calls and a subagent. It prints what became of each.
const drive = `
import { Knoot } from "./knoot.mjs"
const session = { get: async ({ path }) => ({ data: { id: path.id, directory: "/repo" } }) }
const hooks = await Knoot({ client: { session }, directory: "/repo" })
const say = (what, v) => console.log(JSON.stringify([what, v]))
const prompt = async (id, text) => {
  const output = { message: { id: "msg_1" }, parts: [{ id: "prt_1", type: "text", text }] }
  await hooks["chat.message"]({ sessionID: id }, output)
  say("prompt", output.parts.slice(1).map((p) => [p.id, p.text, p.synthetic, p.sessionID, p.messageID]))
}
const call = async (id, tool, args) => {
  const input = { tool, sessionID: id, callID: "c1" }
  try {
    await hooks["tool.execute.before"](input, { args })
  } catch (err) {
    return say("refused", err.message)
  }
  const output = { output: "result" }
  await hooks["tool.execute.after"]({ ...input, args }, output)
  say("result", output.output)
}
await hooks.event({ event: { type: "session.created", properties: { sessionID: "s1", info: { id: "s1", directory: "/repo/sub" } } } })
await prompt("s1", "hello")
await call("s1", "write", { filePath: "free.go" })
await call("s1", "write", { filePath: "held.go" })
await hooks.event({ event: { type: "session.created", properties: { sessionID: "s2", info: { id: "s2", parentID: "s1", directory: "/repo/sub" } } } })
await prompt("s2", "look")
await call("s2", "read", { filePath: "free.go" })
await hooks.event({ event: { type: "session.idle", properties: { sessionID: "s2" } } })
await hooks.event({ event: { type: "session.idle", properties: { sessionID: "s1" } } })
await hooks.event({ event: { type: "session.compacted", properties: { sessionID: "s1" } } })
await prompt("s1", "on")
await hooks.event({ event: { type: "server.connected", properties: {} } })
await hooks.dispose()
`

// late has sessions that are there before the plugin is: a subagent of one that is deeper than it is known, when opencode has answers only
// from the second question on.
const late = `
import { Knoot } from "./knoot.mjs"
const parents = { s3: "s2", s2: "s1" }
const times = {}
const session = { get: async ({ path: { id } }) => {
  times[id] = (times[id] ?? 0) + 1
  if (times[id] === 1) throw new Error("busy")
  return { data: { id, parentID: parents[id], directory: "/repo/sub" } }
} }
const hooks = await Knoot({ client: { session }, directory: "/repo" })
await hooks.event({ event: { type: "session.compacted", properties: { sessionID: "s3" } } })
for (let n = 0; n < 4; n++) {
  await hooks["tool.execute.before"]({ tool: "write", sessionID: "s3", callID: "c1" }, { args: { filePath: "free.go" } })
}
console.log(JSON.stringify(times))
`

// driven runs a script with a program in the place of knoot, and returns what it printed and what the program was asked.
func driven(t *testing.T, script, program string) (said, asked []string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node, in the place of the Bun in opencode")
	}
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("knoot.mjs", OpencodePlugin, 0o644)
	write("drive.mjs", script, 0o644)
	env := []string{"PATH=" + os.Getenv("PATH"), "LOG=" + filepath.Join(dir, "log"), "KNOOT_BIN=" + filepath.Join(dir, "knoot")}
	if program != "" {
		write("knoot", program, 0o755)
	}
	cmd := exec.Command(node, "drive.mjs")
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	log, _ := os.ReadFile(filepath.Join(dir, "log")) // a program that asked nothing wrote none
	return strings.Split(strings.TrimSpace(string(out)), "\n"), strings.Fields(strings.TrimSpace(string(log)))
}

func TestOpencodePlugin(t *testing.T) {
	t.Parallel()
	said, asked := driven(t, drive, `#!/bin/sh
payload=$(cat)
echo "$1,$2,$OPENCODE_PID:$payload" | tr -d ' ' >> "$LOG"
case "$payload" in
*PreToolUse*held.go*) echo '{"deny":"sam holds it","context":"and more"}' ;;
*PreToolUse*) echo '{"context":"before"}' ;;
*PostToolUse*) echo '{"context":"after"}' ;;
*SessionStart*) echo '{"context":"welcome"}' ;;
*UserPromptSubmit*) echo '{"context":"news"}' ;;
*SubagentStart*) echo '{"context":"you too"}' ;;
esac
`)
	want := []string{
		`["prompt",[["prt_1k","welcome",true,"s1","msg_1"],["prt_1kk","news",true,"s1","msg_1"]]]`,
		`["result","result\n\nbefore\n\nafter"]`,
		`["refused","sam holds it\n\nand more"]`,
		`["prompt",[["prt_1k","you too",true,"s2","msg_1"]]]`,
		`["result","result\n\nbefore\n\nafter"]`,
		`["prompt",[["prt_1k","welcome",true,"s1","msg_1"],["prt_1kk","news",true,"s1","msg_1"]]]`,
	}
	if strings.Join(said, "\n") != strings.Join(want, "\n") {
		t.Errorf("said\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
	events := []string{"SessionStart s1", "UserPromptSubmit s1", "PreToolUse s1", "PostToolUse s1", "PreToolUse s1", "SubagentStart s1/s2",
		"PreToolUse s1/s2", "PostToolUse s1/s2", "SubagentStop s1/s2", "Stop s1", "SessionStart s1", "UserPromptSubmit s1", "SessionEnd s1"}
	var got []string
	for _, line := range asked {
		head, payload, _ := strings.Cut(line, ":")
		p, err := opencode.decode(strings.NewReader(payload))
		if err != nil || !strings.HasPrefix(head, "hook,opencode,") || strings.HasSuffix(head, ",") {
			t.Fatalf("%s: %v", line, err)
		}
		name := p.event + " " + p.hook.Session
		if p.hook.Subagent != "" {
			name += "/" + p.hook.Subagent
		}
		got = append(got, name)
		if p.hook.Cwd != "/repo/sub" {
			t.Errorf("%s in %s", p.event, p.hook.Cwd)
		}
		switch p.event {
		case "PreToolUse":
			if p.hook.Tool == "" || p.hook.ToolUse != "c1" || p.name(opencode.tools[p.hook.Tool]) == "" {
				t.Errorf("%s", line)
			}
		case "SessionStart":
			if want := []string{"startup", "compact"}[min(len(got)-1, 1)]; p.hook.Source != want {
				t.Errorf("source %q, want %q", p.hook.Source, want)
			}
		}
	}
	if strings.Join(got, ", ") != strings.Join(events, ", ") {
		t.Errorf("asked\n%s\nwant\n%s", got, events)
	}
}

// What opencode does not say the first time it is asked again, of a session and of those above it, and not once more than that.
func TestOpencodePluginAsksAgainWhoseSessionItIs(t *testing.T) {
	t.Parallel()
	said, asked := driven(t, late, `#!/bin/sh
tr -d ' \n' >> "$LOG"
echo >> "$LOG"
`)
	if want := `{"s3":2,"s2":2,"s1":2}`; strings.Join(said, "\n") != want {
		t.Errorf("opencode was asked %s, want %s", said, want)
	}
	var got []string
	for _, payload := range asked {
		p, err := opencode.decode(strings.NewReader(payload))
		if err != nil {
			t.Fatalf("%s: %v", payload, err)
		}
		got = append(got, p.hook.Session+"/"+p.hook.Subagent+" "+p.hook.Cwd)
	}
	if want := "s3/ /repo, s2/s3 /repo/sub, s1/s3 /repo/sub, s1/s3 /repo/sub"; strings.Join(got, ", ") != want {
		t.Errorf("calls of %q, want %q", got, want)
	}
}

// Without knoot, or with one that fails, everything is as if there were no plugin.
func TestOpencodePluginNeverFails(t *testing.T) {
	t.Parallel()
	for name, program := range map[string]string{
		"not installed": "", "says nothing": "#!/bin/sh\ncat >/dev/null\n", "reads nothing": "#!/bin/sh\nexit 0\n", "fails": "#!/bin/sh\nexit 3\n",
		"garbage": "#!/bin/sh\necho '{\"deny\":'\n", "no object": "#!/bin/sh\necho null\n", "dies": "#!/bin/sh\nkill -9 $$\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said, _ := driven(t, drive, program)
			want := `["prompt",[]] ["result","result"] ["result","result"] ["prompt",[]] ["result","result"] ["prompt",[]]`
			if got := strings.Join(said, " "); got != want {
				t.Errorf("%s", got)
			}
		})
	}
}

// The file is found again by its text, so it holds nothing that differs from one machine to another.
func TestOpencodePluginIsConstant(t *testing.T) {
	if _, err := json.Marshal(OpencodePlugin); err != nil || strings.ContainsAny(OpencodePlugin, "\r\t") || !strings.HasSuffix(OpencodePlugin, "}\n") {
		t.Error("not a text of lines")
	}
	for _, name := range []string{"/home", "/usr", "version"} {
		if strings.Contains(OpencodePlugin, name) {
			t.Errorf("it names %s", name)
		}
	}
}

func FuzzOpencodePayload(f *testing.F) { fuzzPayload(f, "opencode") }
