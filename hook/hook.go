// Package hook answers the hooks of coding agents. An agent runs `knoot hook NAME` at each event of a session and writes a
// payload to it; the hook asks the daemon, and puts what the daemon has to say into the agent's words.
//
// Whatever goes wrong, an agent never notices: the exit status is 0, nothing is printed, and a line in a file says that a
// hook failed and why. Payloads hold whole files; they are read through a small buffer, and of what they hold only names
// leave the process.
package hook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"knoot.dev/knoot/daemon/socket"
)

// limits bound a hook, whatever a pipe, a file system or the daemon does.
type limits struct {
	stdin  time.Duration // for the agent to write the payload
	answer time.Duration // from then until the agent may go on
	fail   time.Duration // for the line that says what failed
}

var agentLimits = limits{stdin: 2 * time.Second, answer: 300 * time.Millisecond, fail: 100 * time.Millisecond}

// reserve is what of limits.answer the daemon does not get, so that its delay is told from that of a file system.
const reserve = 20 * time.Millisecond

// Usage is what `knoot hook -h` prints.
const Usage = `USAGE
  knoot hook AGENT [--explain]

Answers a hook of a coding agent: it reads the event from stdin and prints what the
agent should know, if anything. "knoot init" puts it into the agent's settings; there
is no need to run it by hand. It never fails: if something is wrong it prints nothing,
exits 0 and leaves a line for "knoot status".

AGENT is claude, codex, copilot, cursor, gemini or opencode.

FLAGS
  --explain   print what would be asked of the daemon, as JSON, and ask nothing

EXAMPLE
  knoot hook claude --explain < payload.json
`

// process is what a hook sees of the world.
type process struct {
	stdin      io.Reader
	stdout     io.Writer
	stderr     io.Writer
	environ    []string
	now        func() time.Time
	executable func() (string, error)
	limits     limits
}

// Run is `knoot hook ARGS`; it returns the exit status. Only -h and --explain, which people type, print anything but
// what an agent expects, or fail.
func Run(args []string) int {
	signal.Ignore(syscall.SIGPIPE) // an agent that has gone is a failure like others, not a death
	p := &process{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ(),
		now: time.Now, executable: os.Executable, limits: agentLimits,
	}
	return p.run(args)
}

func (p *process) run(args []string) int {
	explain, help := false, false
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		explain = explain || arg == "--explain" || arg == "-explain"
		help = help || arg == "-h" || arg == "--help" || arg == "-help"
		return len(arg) > 1 && arg[0] == '-' // flags of later versions are none of this one's business
	})
	switch {
	case help:
		if _, err := io.WriteString(p.stdout, Usage); err != nil {
			return 1
		}
		return 0
	case explain:
		if err := p.explain(args); err != nil {
			fmt.Fprintf(p.stderr, "knoot hook: %v\n", err)
			return 1
		}
		return 0
	}
	p.answer(args)
	return 0
}

func agentOf(args []string) (*agent, error) {
	if len(args) == 0 {
		return nil, errors.New("say whose hook it is: knoot hook claude")
	}
	if a := agents[args[0]]; a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("%q is no agent that this version knows; it knows claude, codex, copilot, cursor, gemini and opencode", args[0])
}

func (p *process) explain(args []string) error {
	a, err := agentOf(args)
	if err != nil {
		return err
	}
	payload, err := p.read(a)
	if err != nil {
		return fmt.Errorf("the payload on stdin is not usable: %w", err)
	}
	return a.explain(args[0], payload, p.getenv).print(p.stdout)
}

// answer answers a hook. It ends in time, whatever a pipe, a file system or the daemon does.
func (p *process) answer(args []string) {
	code := ""
	defer func() {
		if recover() != nil {
			code = failPanic
		}
		if code != "" {
			p.fail(code)
		}
	}()
	if switchedOff(p.getenv) {
		return
	}
	a, err := agentOf(args)
	if err != nil {
		code = failAgent
		return
	}
	payload, err := p.read(a)
	if errors.Is(err, errForeign) {
		return
	}
	if err != nil {
		code = payloadFailure(err)
		return
	}
	out, failed := p.limited(func() ([]byte, string) { return p.ask(a, args[0], payload) })
	code = failed
	if len(out) > 0 {
		if _, err := p.stdout.Write(out); err != nil {
			code = failStdout
		}
	}
}

var (
	errLate  = errors.New("stdin was not closed in time")
	errPanic = errors.New("knoot has a mistake: please report it")
)

// read decodes stdin, in its own goroutine, since reading a pipe cannot be stopped; after the limit it is left to the end of
// the process. After an error the rest is read too: some agents are not prepared for a pipe that closes.
func (p *process) read(a *agent) (*payload, error) {
	type result struct {
		payload *payload
		err     error
	}
	done := make(chan result, 1)
	go func() {
		defer func() {
			if recover() != nil {
				done <- result{nil, errPanic}
			}
		}()
		payload, err := a.decode(p.stdin)
		if err != nil {
			_, _ = io.Copy(io.Discard, p.stdin)
		}
		done <- result{payload, err}
	}()
	limit := time.NewTimer(p.limits.stdin)
	defer limit.Stop()
	select {
	case r := <-done:
		return r.payload, r.err
	case <-limit.C:
		return nil, errLate
	}
}

// limited runs f for limits.answer at most. A directory on a server that is gone can hold f much longer; it is left behind.
func (p *process) limited(f func() (out []byte, code string)) ([]byte, string) {
	type result struct {
		out  []byte
		code string
	}
	done := make(chan result, 1)
	go func() {
		defer func() {
			if recover() != nil {
				done <- result{nil, failPanic}
			}
		}()
		out, code := f()
		done <- result{out, code}
	}()
	limit := time.NewTimer(p.limits.answer)
	defer limit.Stop()
	select {
	case r := <-done:
		return r.out, r.code
	case <-limit.C:
		return nil, failSlow
	}
}

// ask turns a payload into a request and the answer into output. The code is "" unless something failed.
func (p *process) ask(a *agent, name string, payload *payload) (out []byte, code string) {
	ctx, cancel := context.WithTimeout(context.Background(), p.limits.answer-reserve)
	defer cancel()
	h := &payload.hook
	event, known := a.events[payload.event]
	if _, ours := a.tools[h.Tool]; !known || event.tool && !ours {
		return nil, ""
	}
	at, err := socket.Locate(p.getenv)
	if err != nil {
		return nil, "" // nor is there a place to say so
	}
	now := p.now()
	if paused(filepath.Join(at.Home, "off"), now) {
		return nil, ""
	}
	h.Agent = name
	touched, opaque := a.touches(payload, p.getenv)
	h.Cwd = realCwd(h.Cwd)
	found := places(h.Cwd, touched)
	h.Places = awake(found, now)
	if len(found) > 0 && len(h.Places) == 0 {
		return nil, ""
	}
	h.Shell, h.Opaque = event.tool && a.tools[h.Tool].shell, opaque
	h.Background = h.Background && h.Shell
	h.Silent = !event.context && !event.hold
	h.Process, _ = strconv.Atoi(p.getenv(a.pid))
	h.Ancestors = socket.Ancestors()
	h.Name = cutText(p.getenv("KNOOT_AGENT"), maxName)
	h.User = cutText(p.getenv("KNOOT_USER"), maxName)
	private := p.getenv("KNOOT_PRIVATE")
	h.Private = private != "" && private != "0"
	if h.Name == "" || h.Private {
		h.Said = "" // autopilot looks after agents that the daemon runs, which have a name
	}

	starts := starter{at: at, executable: p.executable, environ: p.environ, getenv: p.getenv, now: now}
	mayStart := event.start && len(h.Places) > 0
	resp, err := at.Ask(ctx, &socket.Request{Op: "hook", Hook: h})
	code = askFailure(err)
	switch {
	case code == failAbsent && mayStart:
		switch started, err := starts.start(); {
		case err != nil:
			code = failNoStart
		case started:
			code = failStarted
		}
	case err == nil:
		if mayStart && socket.NewerThan(socket.Version, resp.Version) {
			_, _ = starts.start() // it takes over from the older one, which goes on answering if that fails
		}
		if resp.Error != "" {
			code = failRefused
		} else {
			out = a.encode(payload.event, h, resp.Answer)
			if resp.Answer != nil && resp.Answer.Late {
				code = failBusy
			}
		}
	}
	switch {
	case payload.marked:
		code = failMark
	case payload.broken:
		code = failBroken
	case code == "" && event.deny && a.tools[h.Tool].writes && payload.name(a.tools[h.Tool]) == "":
		code = failPath
	}
	return out, code
}

// realCwd is the working directory without symbolic links.
func realCwd(cwd string) string {
	if real := realPath(cwd); real != "" {
		return real
	}
	return filepath.Clean(cwd)
}

func (p *process) getenv(key string) string {
	for _, pair := range slices.Backward(p.environ) {
		if name, value, _ := strings.Cut(pair, "="); name == key {
			return value
		}
	}
	return ""
}

// fail leaves a line about a failed hook, if that is possible, soon.
func (p *process) fail(code string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if at, err := socket.Locate(p.getenv); err == nil {
			_ = appendFailure(failuresFile(at), p.now(), code) // there is nobody to tell
		}
	}()
	limit := time.NewTimer(p.limits.fail)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
	}
}
