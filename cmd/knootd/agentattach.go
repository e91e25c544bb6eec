package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/charmbracelet/x/term"
	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/mcpd"
)

// detachKey leaves an agent's terminal: Ctrl-].
const detachKey = 0x1d

func (c *console) agentAttachCommand() *ffcli.Command {
	flags := newFlags("agent attach")
	return command(manual{
		name: "agent attach", usage: "NAME",
		short: "See an agent's terminal in this one, and type to it",
		long: `It shows what was printed lately, and then what is. Ctrl-] leaves it: the agent goes on.
While you type nothing else is typed to it. Needs a person at a terminal.`,
		example: "knoot agent attach bob",
	}, flags, func(ctx context.Context, args []string) error {
		if len(args) != 1 {
			return misusef("say which agent: `knoot agent attach NAME`; `knoot agent ls` lists them")
		}
		if c.idle() {
			return nil
		}
		if err := c.needPerson(); err != nil {
			return err
		}
		in, isFile := c.stdin.(*os.File)
		if !isFile || !onTerminal(c.stdin) || !onTerminal(c.stdout) {
			return errors.New("this needs a terminal, for it shows one: run it in a window of its own")
		}
		var answer mcpd.AgentAnswer
		if err := c.askAgent(ctx, mcpd.AgentRequest{Do: "attach", Agent: args[0]}, &answer); err != nil {
			return err
		}
		before, err := term.MakeRaw(in.Fd())
		if err != nil {
			return fmt.Errorf("this terminal takes no single keys: %w", err)
		}
		shown, err := (&attached{c: c, in: in, agent: args[0], url: answer.URL, token: answer.Token}).run(ctx)
		_ = term.Restore(in.Fd(), before)
		// Whatever modes the program set are not this shell's: the other screen, a hidden cursor, the mouse, pasting, attributes.
		fmt.Fprint(c.stdout, "\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[0m\r\n")
		if err != nil {
			return err
		}
		fmt.Fprintln(c.stdout, shown)
		return nil
	})
}

// attached is this terminal as an agent's.
type attached struct {
	c          *console
	in         *os.File
	agent      string
	url, token string
}

// run shows the agent's terminal until the person leaves it or the program ends, and says which.
func (a *attached) run(outer context.Context) (string, error) {
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	if err := a.fit(ctx); err != nil {
		return "", err
	}
	done := make(chan error, 3)
	go func() { done <- a.show(ctx) }()
	left := make(chan struct{})
	go func() {
		if err := a.typing(ctx); err != nil {
			done <- err
			return
		}
		close(left)
	}()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	stays := "You left " + a.agent + ", which goes on."
	for {
		select {
		case err := <-done:
			if outer.Err() != nil && (err == nil || errors.Is(err, outer.Err())) { // a signal ended this, not the agent
				return stays, nil
			}
			return a.agent + " has ended.", err
		case <-left:
			return stays, nil
		case <-resized:
			if err := a.fit(ctx); err != nil {
				return "", err
			}
		}
	}
}

// fit gives the agent's terminal the size of this one.
func (a *attached) fit(ctx context.Context) error {
	columns, rows, err := term.GetSize(a.in.Fd())
	if err != nil || rows == 0 || columns == 0 {
		return nil // one without a size
	}
	return a.send(ctx, mcpd.TerminalInput{AgentID: a.agent, Rows: rows, Columns: columns})
}

// typing sends keys until the one that leaves.
func (a *attached) typing(ctx context.Context) error {
	buffer := make([]byte, 4096)
	for {
		n, err := a.in.Read(buffer)
		keys := buffer[:n]
		at := bytes.IndexByte(keys, detachKey)
		if at >= 0 {
			keys = keys[:at]
		}
		if len(keys) > 0 {
			if err := a.send(ctx, mcpd.TerminalInput{AgentID: a.agent, Keys: keys}); err != nil {
				return err
			}
		}
		if at >= 0 || errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (a *attached) show(ctx context.Context) error {
	resp, err := a.request(ctx, http.MethodGet, a.url+"?agent="+url.QueryEscape(a.agent), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(a.c.stdout, resp.Body)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (a *attached) send(ctx context.Context, in mcpd.TerminalInput) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	resp, err := a.request(ctx, http.MethodPost, a.url, body)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// request asks the daemon's server, which answers well or says what is wrong.
func (a *attached) request(ctx context.Context, method, at string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	} else {
		req.Body = nil
	}
	resp, err := (&http.Client{Transport: direct}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("the daemon is gone: %w", err)
	}
	if resp.StatusCode >= 300 {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		_ = resp.Body.Close()
		return nil, errors.New(oneLine(string(said)))
	}
	return resp, nil
}

// direct asks this machine, whatever proxy the environment names.
var direct = &http.Transport{Proxy: nil}
