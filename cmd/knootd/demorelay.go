package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"knoot.dev/knoot/arbiter/relay"
)

// What the demo's two machines have beside demoPath.
const (
	demoOther      = "src/cart.js"
	demoMessage    = "the cart will call total() with a currency"
	demoLive       = "half-even"
	demoLiveText   = "invoice totals round half-even, once, at the end"
	demoPriyaAgent = "priya-monday"
	demoSamAgent   = "sam-monday"
)

// relayScenes are those of two machines at one relay.
func (s *theatre) relayScenes() []scene {
	return []scene{
		{"A relay runs where both machines reach it. Priya's repository names it; Sam, on another machine, joins.", s.setUpRelay},
		{"Priya's agent, on her machine, writes a file. Sam's, on his, is about to.", s.contendAcross},
		{"Sam's agent leaves a message. Priya's reads it at its next tool call.", s.messageAcross},
		{"The git host is away. What Priya's agent learns, Sam's agent reads all the same, at once and once.", s.factAcross},
		{"The relay is killed. The agents do not know.", s.killRelay},
		{"The relay is back, and so is the order.", s.orderIsBack},
		{"What the relay has on its disk and in its log: who and when, and not a word.", s.lookAtRelay},
	}
}

// stageRelay is a relay of the demo's, in a process of its own.
type stageRelay struct {
	state, address, key string
	command             *exec.Cmd
	log                 bytes.Buffer // guarded by mu: all that it ever said
	mu                  sync.Mutex
	read                chan struct{} // closed when its log has ended
}

// start starts the relay, where it was if it ran before, and waits until it listens.
func (r *stageRelay) start(s *theatre) error {
	listen := r.address
	for try := 0; listen == "" && try < 20; try++ { // below the ports that connections get: it is to be free when the relay is started again
		if sockets, err := relay.Listen(fmt.Sprint("127.0.0.1:", 10_000+rand.IntN(20_000))); err == nil {
			listen = sockets.TCP.Addr().String()
			sockets.Close()
		}
	}
	listen = cmp.Or(listen, "127.0.0.1:0")
	r.command = exec.Command(filepath.Join(s.bin, "knoot"), "relay", "--listen", listen, "--state", r.state, "--log", "json")
	r.command.Dir, r.command.Env = s.dir, s.environment("relay")
	out, err := r.command.StdoutPipe()
	if err != nil {
		return err
	}
	log, err := r.command.StderrPipe()
	if err != nil {
		return err
	}
	if err := r.command.Start(); err != nil {
		return fmt.Errorf("the relay does not start: %w", err)
	}
	first, _ := bufio.NewReader(out).ReadString('\n')
	listening := make(chan string, 1)
	r.read = make(chan struct{})
	go func() {
		defer close(r.read)
		lines := bufio.NewScanner(log)
		for lines.Scan() {
			r.mu.Lock()
			r.log.Write(append(lines.Bytes(), '\n'))
			r.mu.Unlock()
			var line struct {
				Message string `json:"msg"`
				Address string `json:"address"`
			}
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Message == "listening" {
				listening <- line.Address
			}
		}
	}()
	select {
	case r.address = <-listening:
	case <-r.read:
		_ = r.command.Wait()
		return fmt.Errorf("the relay does not start: %s", oneLine(r.said()))
	}
	var found bool
	if r.key, found = strings.CutPrefix(strings.TrimSpace(first), "relay key "); !found {
		return fmt.Errorf("the relay printed %q instead of its key", first)
	}
	return nil
}

// said is its whole log.
func (r *stageRelay) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// end sends a signal and waits for the end. SIGKILL is no end that a program could make a good one.
func (r *stageRelay) end(how syscall.Signal) error {
	if r.command == nil || r.command.Process == nil {
		return nil
	}
	if err := r.command.Process.Signal(how); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-r.read
	err := r.command.Wait()
	r.command = nil
	if err != nil && how != syscall.SIGKILL {
		return fmt.Errorf("the relay did not end well: %w", err)
	}
	return nil
}

func (s *theatre) setUpRelay(ctx context.Context) error {
	s.relay = &stageRelay{state: filepath.Join(s.dir, "relay")}
	if err := s.relay.start(s); err != nil {
		return err
	}
	s.show("server", "knoot relay --listen "+s.relay.address+" --state relay", "relay key "+s.relay.key)
	if err := s.setUp(ctx); err != nil {
		return err
	}
	if err := s.both(ctx, s.open); err != nil {
		return err
	}
	s.checked("both machines are at the relay, which asked neither for an account: the team's roster says who belongs to it.")
	return nil
}

// both does something for both machines.
func (s *theatre) both(ctx context.Context, f func(context.Context, string) error) error {
	for _, person := range []string{"priya", "sam"} {
		if err := f(ctx, person); err != nil {
			return err
		}
	}
	return nil
}

// open waits until a person's machine asks the relay for its claims.
func (s *theatre) open(ctx context.Context, person string) error {
	patience, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	// A daemon opens a clone at its first hook or command there.
	if _, err := s.run(ctx, s.clone(person), nil, nil, "knoot", "who"); err != nil {
		return err
	}
	return s.until(patience, person+"'s machine is not connected to the relay", func() (bool, error) {
		k, err := s.relayCheck(ctx, person)
		if err == nil && k.OK && strings.Contains(k.Detail, ", by ") {
			s.show(person, "knoot status", "  ok  relay  "+k.Detail)
			return true, nil
		}
		return false, err
	})
}

// relayCheck is what `knoot status` says of the relay.
func (s *theatre) relayCheck(ctx context.Context, person string) (check, error) {
	out, _ := s.tryRun(ctx, s.clone(person), nil, nil, "knoot", "status", "--json") // it exits 1 while anything is missing
	var report statusReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		return check{}, fmt.Errorf("`knoot status --json` printed %q: %w", out, err)
	}
	for _, k := range report.Checks {
		if k.Name == "relay" {
			return k, nil
		}
	}
	return check{}, errors.New("`knoot status` does not name the relay")
}

// writes plays the hooks of a write, and the write, of a session that must not be refused; it holds the file then.
func (s *theatre) writes(ctx context.Context, person, session, path, call string) error {
	clone := s.clone(person)
	if err := s.claims(ctx, person, session, path, call); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(clone, filepath.FromSlash(path)), []byte("// by "+session+"\n"), 0o644); err != nil {
		return err
	}
	_, err := s.hook(ctx, clone, session, writeOf(clone, "PostToolUse", call, path))
	return err
}

func (s *theatre) contendAcross(ctx context.Context) error {
	if err := s.begins(ctx, s.clone("priya"), demoPriyaAgent, demoIntent); err != nil {
		return err
	}
	if err := s.begins(ctx, s.clone("sam"), demoSamAgent, "show each price with its currency"); err != nil {
		return err
	}
	if err := s.writes(ctx, "priya", demoPriyaAgent, demoPath, "toolu_p1"); err != nil {
		return err
	}
	h, err := s.refused(ctx, "sam", demoSamAgent, demoPath, "toolu_s1")
	if err != nil {
		return err
	}
	fmt.Fprintf(s.stdout, "   %s\n%s\n", s.dim("Sam's agent, instead of writing, reads:"), quoted(h.Denial))
	if want := lacking(h.Denial, []string{"knoot refused this edit", demoPath, "priya's agent", demoIntent, "its lease has", "Nothing was written."}); want != "" {
		return fmt.Errorf("the denial does not say %q", want)
	}
	out, err := s.run(ctx, s.clone("sam"), nil, nil, "knoot", "who")
	if err != nil {
		return err
	}
	fmt.Fprintln(s.stdout)
	s.show("sam", "knoot who", out)
	if err := s.writes(ctx, "sam", demoSamAgent, demoOther, "toolu_s2"); err != nil {
		return err
	}
	s.checked("of two machines one wrote, the other was told who, why and for how long; another file it may write.")
	return nil
}

func (s *theatre) messageAcross(ctx context.Context) error {
	out, err := s.run(ctx, s.clone("sam"), nil, []string{"CLAUDECODE=1", "CLAUDE_CODE_SESSION_ID=" + demoSamAgent}, "knoot", "msg", demoPriyaAgent, demoMessage)
	if err != nil {
		return err
	}
	s.show("sam's agent", fmt.Sprintf("knoot msg %s %q", demoPriyaAgent, demoMessage), out)
	told, err := s.tells(ctx, "priya", demoPriyaAgent, demoMessage)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.stdout, "\n   %s\n%s\n", s.dim("Priya's agent reads:"), quoted(told))
	s.checked("the message came with a hook of the session that it was for.")
	return nil
}

// tells plays reads of the demo's file until the session is told a text, and returns all that it was told.
func (s *theatre) tells(ctx context.Context, person, session, text string) (told string, err error) {
	patience, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	clone := s.clone(person)
	err = s.until(patience, fmt.Sprintf("%s is not told %q", session, text), func() (bool, error) {
		read := readOf(clone, "PreToolUse")
		s.calls++
		read["tool_use_id"] = fmt.Sprintf("toolu_t%d", s.calls) // one that comes again is no other call
		more, err := s.hook(ctx, clone, session, read)
		told += more
		return strings.Contains(told, text), err
	})
	if err != nil && told != "" {
		err = fmt.Errorf("%w, but %q", err, told)
	}
	return told, err
}

func (s *theatre) factAcross(ctx context.Context) error {
	host, priya, sam := filepath.Join(s.dir, "host.git"), s.clone("priya"), s.clone("sam")
	if err := os.Rename(host, host+".away"); err != nil {
		return err
	}
	if _, err := s.tryRun(ctx, priya, nil, nil, "git", "fetch", "-q"); err == nil {
		return errors.New("the git host is away, and git fetches from it")
	}
	out, err := s.run(ctx, priya, nil, []string{"CLAUDECODE=1", "CLAUDE_CODE_SESSION_ID=" + demoPriyaAgent},
		"knoot", "remember", "--name", demoLive, "--path", demoPath, demoLiveText)
	if err != nil {
		return err
	}
	said := time.Now()
	s.show("priya's agent", fmt.Sprintf("knoot remember --name %s --path %s \\\n       %q", demoLive, demoPath, demoLiveText), out)
	told, err := s.tells(ctx, "sam", demoSamAgent, demoLiveText)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.stdout, "\n   %s\n%s\n", s.dim(fmt.Sprintf("Sam's agent opens the file, %d ms later, and reads:", time.Since(said).Milliseconds())), quoted(told))
	if err := os.Rename(host+".away", host); err != nil {
		return err
	}
	for _, clone := range []string{priya, sam} {
		if _, err := s.run(ctx, clone, nil, nil, "knoot", "sync"); err != nil {
			return err
		}
	}
	s.show("sam", "knoot sync    # the host is back, and brings the same segment", "")
	again, err := s.hook(ctx, sam, demoSamAgent, readOf(sam, "PreToolUse"))
	if err != nil {
		return err
	}
	if strings.Contains(again, demoLiveText) {
		return errors.New("the agent was told the fact again when git had brought it")
	}
	rows, err := s.run(ctx, sam, nil, nil, "knoot", "recall", "--all", "--json")
	if err != nil {
		return err
	}
	if n := strings.Count(rows, demoLiveText); n != 1 {
		return fmt.Errorf("sam's `knoot recall` has the fact %d times", n)
	}
	s.checked("it was told once, and recall has it once: the relay's segment and the host's are one.")
	return nil
}

func (s *theatre) killRelay(ctx context.Context) error {
	process := s.relay.command.Process.Pid
	if err := s.relay.end(syscall.SIGKILL); err != nil {
		return err
	}
	s.show("server", fmt.Sprintf("kill -9 %d", process), "")
	// At once, and in both places: what the machines find out about the relay they find out while agents work.
	for i, each := range []struct{ person, session, path string }{
		{"priya", demoPriyaAgent, demoPath}, {"sam", demoSamAgent, demoOther}, {"priya", demoPriyaAgent, "src/tax.js"}, {"sam", demoSamAgent, "src/mail.js"},
	} {
		began := time.Now()
		clone := s.clone(each.person)
		call := fmt.Sprintf("toolu_k%d", i)
		h, err := s.answerOf(ctx, clone, each.session, writeOf(clone, "PreToolUse", call, each.path))
		if err != nil {
			return err
		}
		if h.Denial != "" || strings.Contains(h.Context, "relay") {
			return fmt.Errorf("without the relay %s is told %q %q", each.session, h.Denial, h.Context)
		}
		fmt.Fprintf(s.stdout, "   %s\n", s.dim(fmt.Sprintf("%s's agent writes %s: exit 0, nothing printed, %d ms", each.person, each.path, time.Since(began).Milliseconds())))
		if err := s.writes(ctx, each.person, each.session, each.path, call); err != nil {
			return err
		}
	}
	if err := s.both(ctx, func(ctx context.Context, person string) error {
		patience, cancel := context.WithTimeout(ctx, 2*demoPatience)
		defer cancel()
		return s.until(patience, person+"'s machine does not find out that the relay is gone", func() (bool, error) {
			k, err := s.relayCheck(ctx, person)
			if err == nil && !k.OK && person == "sam" {
				fmt.Fprintln(s.stdout)
				s.show(person, "knoot status", "  !!  relay  "+strings.Join(wrap(k.Detail, helpWidth-16), "\n             "))
			}
			return !k.OK, err
		})
	}); err != nil {
		return err
	}
	// Each machine keeps its own order.
	if err := s.begins(ctx, s.clone("priya"), "priya-tuesday", "look at the invoice"); err != nil {
		return err
	}
	if _, err := s.refused(ctx, "priya", "priya-tuesday", demoPath, "toolu_p9"); err != nil {
		return err
	}
	s.checked("every hook ended with exit 0 and every write was allowed; a second agent of Priya's is refused the file all the same, by her own machine.")
	return nil
}

func (s *theatre) orderIsBack(ctx context.Context) error {
	if err := s.relay.start(s); err != nil {
		return err
	}
	s.show("server", "knoot relay --listen "+s.relay.address+" --state relay", "relay key "+s.relay.key)
	if err := s.both(ctx, s.open); err != nil {
		return err
	}
	fmt.Fprintln(s.stdout)
	for _, each := range []struct{ person, session, path, holder string }{
		{"sam", demoSamAgent, demoPath, "priya's agent"},     // held since before
		{"sam", demoSamAgent, "src/tax.js", "priya's agent"}, // taken meanwhile
		{"priya", demoPriyaAgent, "src/mail.js", "sam's agent"},
	} {
		h, err := s.refused(ctx, each.person, each.session, each.path, "toolu_r"+each.path)
		if err != nil {
			return err
		}
		if !strings.Contains(h.Denial, each.holder) {
			return fmt.Errorf("the denial of %s does not name %s: %q", each.path, each.holder, h.Denial)
		}
		fmt.Fprintf(s.stdout, "   %s\n", s.dim(fmt.Sprintf("%s's agent is refused %s, which %s holds", each.person, each.path, each.holder)))
	}
	s.checked("what was held before the kill is held, and what was written meanwhile belongs to whoever wrote it.")
	return nil
}

func (s *theatre) lookAtRelay(context.Context) error {
	if err := s.relay.end(syscall.SIGTERM); err != nil {
		return err
	}
	var held []byte
	files := 0
	err := filepath.WalkDir(s.relay.state, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		held = append(held, content...)
		files++
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.stdout, "   %s\n", s.dim(fmt.Sprintf("%d files, %d bytes, and %d lines of log", files, len(held), strings.Count(s.relay.said(), "\n"))))
	held = append(held, s.relay.said()...)
	for what, secret := range map[string]string{"path": demoPath, "other path": demoOther, "intent": demoIntent, "message": demoMessage, "fact": demoLiveText,
		"fact's name": demoLive, "branch": "refs/heads/main", "member": "priya"} {
		if bytes.Contains(held, []byte(secret)) {
			return fmt.Errorf("the relay has the %s (%q) in the clear", what, secret)
		}
	}
	s.checked("no path, no branch, no intent, no message, no fact and no name is in any of it.")
	return nil
}
