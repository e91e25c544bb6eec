package main

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/peterbourgon/ff/v3/ffcli"

	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

func (c *console) watchCommand() *ffcli.Command {
	flags := newFlags("watch")
	asJSON := jsonFlag(flags)
	return command(manual{
		name: "watch", usage: "[--json]",
		short: "Show live who is at work, who holds what, and what happens",
		long: `A screen of the terminal: who is here, the files that are held, what happened, and
what is remembered. q ends it.

--json prints what happens as it does, a line each, until it is interrupted: {at,
kind, session, who, path, other, branch, text}; absent ones are "".`,
		example: "knoot watch",
	}, flags, func(ctx context.Context, args []string) error {
		if err := noArguments("watch", args); err != nil {
			return err
		}
		repo, err := c.repository(ctx)
		if err != nil {
			return err
		}
		if *asJSON {
			return c.watchLines(ctx)
		}
		if !onTerminal(c.stdin) || !onTerminal(c.stdout) || c.getenv("TERM") == "dumb" {
			return errors.New("watch draws on a terminal, and this is none: `knoot watch --json` prints lines, `knoot who` prints once")
		}
		// Whatever is wrong is better said before the screen is taken.
		first, err := c.observe(ctx, daemon.WatchRequest{})
		if err != nil && !errors.Is(err, socket.ErrAbsent) {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		m := &watchModel{
			screen: watchScreen{title: filepath.Base(repo.Root), colour: c.colour()},
			ask:    func(r daemon.WatchRequest) (*daemon.Watch, error) { return c.observe(ctx, r) },
			now:    c.now,
		}
		m.take(first, err)
		_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(c.stdin), tea.WithOutput(c.stdout)).Run()
		if errors.Is(err, tea.ErrInterrupted) || errors.Is(err, tea.ErrProgramKilled) || ctx.Err() != nil {
			return nil // it was told to end
		}
		return err
	})
}

// observe asks the daemon what there is to see. It answers when that changes.
func (c *console) observe(ctx context.Context, r daemon.WatchRequest) (*daemon.Watch, error) {
	w := &daemon.Watch{}
	err := c.ask(ctx, "watch", r, w, watchPatience)
	if errors.Is(err, socket.ErrGone) {
		return &daemon.Watch{Again: true, Number: r.After, Memory: r.Memory}, nil
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// watchPatience is more than the daemon waits for a change before it answers that there is none.
const watchPatience = time.Minute

// watchAgain is how long watch waits until it looks for a daemon again, and watchPause how long between two answers, so that a
// storm of events is drawn a few times a second.
const (
	watchAgain = time.Second
	watchPause = 100 * time.Millisecond
)

// watchLines prints events as JSON lines.
func (c *console) watchLines(ctx context.Context) error {
	type line struct {
		At      string `json:"at"`
		Kind    string `json:"kind"`
		Session string `json:"session"`
		Who     string `json:"who"`
		Path    string `json:"path"`
		Other   string `json:"other"`
		Branch  string `json:"branch"`
		Text    string `json:"text"`
	}
	out := json.NewEncoder(c.stdout)
	out.SetEscapeHTML(false)
	var r daemon.WatchRequest
	for {
		w, err := c.observe(ctx, r)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !errors.Is(err, socket.ErrAbsent) {
			return err
		}
		pause := watchPause
		if err != nil || w.Again {
			pause = watchAgain
		} else {
			for _, e := range w.Events {
				if err := out.Encode(line{gitlog.TimeText(e.At), e.Kind, e.Session, e.Who, e.Path, e.Other, e.Branch, e.Text}); err != nil {
					return nil // nobody reads them any more
				}
			}
			r = daemon.WatchRequest{After: w.Number, Memory: w.Memory}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// watchModel is the program that draws the screen. Only Update changes it.
type watchModel struct {
	screen watchScreen
	ask    func(daemon.WatchRequest) (*daemon.Watch, error)
	now    func() time.Time
	asked  daemon.WatchRequest
	failed error
}

// watchAnswer is what the daemon answered; ask again is due after a pause.
type watchAnswer struct {
	*daemon.Watch
	err error
}

// watchDue says that it is time to ask again, watchTick that a second has passed: leases and ages are shown.
type (
	watchDue  struct{}
	watchTick struct{}
)

func (m *watchModel) Init() tea.Cmd { return tea.Batch(m.pause(), tick()) }

func tick() tea.Cmd { return tea.Tick(time.Second, func(time.Time) tea.Msg { return watchTick{} }) }

func (m *watchModel) pause() tea.Cmd {
	wait := watchPause
	if m.failed != nil {
		wait = watchAgain
	}
	return tea.Tick(wait, func(time.Time) tea.Msg { return watchDue{} })
}

func (m *watchModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.screen.width, m.screen.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "ctrl+c", "esc":
			return m, tea.Quit
		case "tab", "right", "l":
			m.screen.turn(1)
		case "shift+tab", "left", "h":
			m.screen.turn(-1)
		case "down", "j":
			m.screen.scroll(1)
		case "up", "k":
			m.screen.scroll(-1)
		case "pgdown", "space":
			m.screen.scroll(10)
		case "pgup":
			m.screen.scroll(-10)
		case "home", "g":
			m.screen.scroll(-1 << 20)
		case "end", "G":
			m.screen.scroll(1 << 20)
		}
	case watchDue:
		r := m.asked
		return m, func() tea.Msg {
			w, err := m.ask(r)
			return watchAnswer{w, err}
		}
	case watchAnswer:
		m.take(msg.Watch, msg.err)
		return m, m.pause()
	case watchTick:
		return m, tick()
	}
	return m, nil
}

// take shows what the daemon answered.
func (m *watchModel) take(w *daemon.Watch, err error) {
	m.failed = err
	m.screen.failed = err
	if err != nil {
		m.asked = daemon.WatchRequest{} // the next daemon has other numbers
		return
	}
	if w.Again {
		m.failed = errors.New("the daemon ends")
		return
	}
	m.screen.take(w, m.asked.After == 0)
	m.asked = daemon.WatchRequest{After: w.Number, Memory: w.Memory}
}

func (m *watchModel) View() tea.View {
	v := tea.NewView(m.screen.draw(m.now()))
	v.AltScreen = true
	return v
}
