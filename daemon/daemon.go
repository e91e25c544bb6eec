// Package daemon is the machine's process: it knows the sessions of the agents that run here, keeps the clones they work
// in open and in sync, and answers their hooks with a brief. One runs for each KNOOT_HOME; it is asked over a unix socket
// (package socket).
//
// Nothing that a hook waits for does network I/O or waits for something that does. What a hook reports is written to
// files before its answer is, so that a daemon that is killed forgets nothing that it was told, and says nothing twice.
package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

const (
	// watchEvery is how often the daemon looks whether its socket, its clones and its settings are still what they were.
	watchEvery = 3 * time.Second
	// idleEnd is how long a daemon that a hook started stays without a session.
	idleEnd = 8 * time.Hour
	// pushAtEnd bounds the last push of an ending daemon.
	pushAtEnd = 3 * time.Second
)

// Options are what Run is told by its command.
type Options struct {
	// Getenv is the environment; os.Getenv when nil.
	Getenv func(string) string
	// Auto says that a hook started the daemon: it ends in silence where it is not wanted, and after some hours without
	// a session.
	Auto bool
	// Listening is called once the daemon accepts; nil: nobody wants to know.
	Listening func(socket.Location)
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// HookTime is how long a hook's answer may take here; what an agent's hook can wait for when 0.
	HookTime time.Duration

	// Coordinate makes the server through which agents coordinate; nil: there is none.
	Coordinate func(*Host) Coordinator

	syncJournal func(*gitlog.Clone) error // (*gitlog.Clone).SyncJournal when nil
	cheapStatus time.Duration             // what it may take git to look at all of a worktree, for that to be asked after command lines; cheapStatus when 0
}

// errHandedOver ends a daemon whose seat a newer one took.
var errHandedOver = errors.New("a newer daemon took over")

// Run is the daemon. It returns when ctx ends, when it is told to stop, when a newer daemon took over, when its socket's
// path is no longer its own, or when it is idle; all of these are no errors. Where a daemon of this version or a newer
// one runs already the error is a *RunningError; with Auto, nil.
func Run(ctx context.Context, o Options) error {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	loc, err := socket.Locate(o.Getenv)
	if err != nil {
		return err
	}
	config, err := LoadConfig(loc.Home)
	if o.Auto && (err != nil || !config.Daemon.Autostart) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := loc.Make(); err != nil {
		return err
	}
	held, err := takeSeat(ctx, loc)
	if running := (*RunningError)(nil); errors.As(err, &running) && o.Auto {
		return nil
	}
	if err != nil {
		return err
	}
	d, err := newDaemon(o, loc, config, held)
	if err != nil {
		held.close()
		return err
	}
	return d.run(ctx)
}

// daemon is a running daemon. What its goroutines share has a lock of its own.
type daemon struct {
	options Options
	loc     socket.Location
	home    *gitlog.Home
	lock    *os.File
	server  *server
	log     *slog.Logger
	logFile *logFile
	config  *settings
	state   *state
	mail    *mail
	clones  *clones

	arbitrations *arbitrations
	relays       *relayLinks
	feed         *feed // what happened there, for whoever watches
	left         *leftWatch
	overlaps     *overlapWatch
	processes    *processWatch
	presences    *presences
	coordinator  Coordinator // nil: there is none

	started time.Time
	ended   chan struct{}         // closed by end
	once    sync.Once             // of end
	why     atomic.Pointer[error] // set by end
	work    context.Context       // what hooks and commands run in; ends after the last of them
	cancel  context.CancelFunc    // of work
	loops   sync.WaitGroup        // goroutines that work, not connections
	handing atomic.Bool           // a takeover is under way
	waiters atomic.Int64          // requests that wait for something; see patient
	claimed atomic.Uint64         // claims that agents asked for by themselves
	lastUse atomic.Int64          // milliseconds since 1970 of the last hook
}

func newDaemon(o Options, loc socket.Location, config Config, held *seat) (*daemon, error) {
	if o.syncJournal == nil {
		o.syncJournal = (*gitlog.Clone).SyncJournal
	}
	o.cheapStatus, o.HookTime = cmp.Or(o.cheapStatus, cheapStatus), cmp.Or(o.HookTime, hookTime)
	file, err := openLogFile(filepath.Join(loc.Home, "knootd.log"), logSize)
	if err != nil {
		return nil, err
	}
	d := &daemon{options: o, loc: loc, lock: held.lock, logFile: file, log: newLogger(file), started: o.Now(),
		ended: make(chan struct{})}
	d.work, d.cancel = context.WithCancel(context.Background())
	fail := func(err error) (*daemon, error) {
		d.log.Error("cannot start", "error", err)
		d.cancel()
		_ = file.Close()
		return nil, err
	}
	if d.home, err = gitlog.OpenHome(o.Getenv); err != nil {
		return fail(err)
	}
	d.config = newSettings(loc.Home, config)
	d.state = newState(d.home, stateName("sessions", loc), d.log)
	if err := d.state.load(d.now()); err != nil {
		return fail(err)
	}
	d.mail = newMail(d.home, stateName("mail", loc), d.log, d.mailed)
	if err := d.mail.load(d.now()); err != nil {
		d.log.Error("messages cannot be read", "error", err)
	}
	d.clones, d.arbitrations = newClones(d), newArbitrations(d)
	d.feed = newFeed(o.Now())
	d.relays = newRelayLinks(d)
	d.arbitrations.observe(d.relays.observe)
	d.arbitrations.observe(d.notice)
	d.arbitrations.observe(d.feed.observe)
	d.left = newLeftWatch(d)
	d.arbitrations.observe(d.left.observe)
	d.overlaps = newOverlapWatch(d)
	d.arbitrations.observe(d.overlaps.observe)
	d.presences = newPresences(d)
	d.processes = newProcessWatch(d.liveSessions, d.processGone)
	if o.Coordinate != nil {
		d.coordinator = o.Coordinate(&Host{d})
	}
	if d.server, err = newServer(held.listener, loc.Socket(), d.answer); err != nil {
		return fail(err)
	}
	if err := held.confirm(); err != nil {
		return fail(fmt.Errorf("the older daemon did not hand over: %w", err))
	}
	d.lastUse.Store(o.Now().UnixMilli())
	return d, nil
}

func (d *daemon) now() gitlog.Millis { return gitlog.MillisOf(d.options.Now()) }

// run accepts until the daemon ends, and takes everything down in order.
func (d *daemon) run(ctx context.Context) error {
	d.log.Info("started", "version", socket.Version, "process", os.Getpid(), "auto", d.options.Auto)
	if unknown := d.config.now().Unknown; len(unknown) > 0 {
		d.log.Warn("config.toml has keys that this version does not know", "keys", unknown)
	}
	d.state.compact(d.now())
	d.coordinate() // before anybody is answered: whoever asks at once finds it open
	d.loops.Go(func() { d.server.serve(d.work) })
	d.loops.Go(d.watch)
	d.loops.Go(d.reopen)
	d.loops.Go(d.left.run)
	d.loops.Go(d.overlaps.run)
	d.loops.Go(func() { d.processes.run(d.ended) })
	if d.options.Listening != nil {
		d.options.Listening(d.loc)
	}
	select {
	case <-ctx.Done():
		d.end(errors.New("told to end"))
	case <-d.ended:
	}
	why := *d.why.Load()
	handed := errors.Is(why, errHandedOver)
	if !handed {
		// Before the socket goes: the last hooks of the agents that run here would start another daemon.
		d.uncoordinate()
	}
	if !handed && d.server.owns(d.loc.Socket()) {
		// First, so that from now on clients find no daemon instead of one that does not accept.
		_ = os.Remove(d.loc.Socket())
	}
	d.server.close()
	d.server.drain(0, drainTime)
	if handed {
		d.uncoordinate()
	} else {
		d.clones.finish(pushAtEnd)
	}
	d.cancel()
	d.server.conns.Wait()
	d.loops.Wait()
	d.clones.close()
	d.arbitrations.close()
	d.state.close()
	d.mail.close()
	d.log.Info("ended", "why", why)
	_ = d.logFile.Close()
	return d.lock.Close()
}

// end makes run return; the first reason counts.
func (d *daemon) end(why error) {
	d.once.Do(func() {
		d.why.Store(&why)
		close(d.ended)
	})
}

// watch does what has to be done from time to time.
func (d *daemon) watch() {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			d.guard("tick", d.tick)
		case <-d.ended:
			return
		}
	}
}

func (d *daemon) tick() {
	if !d.server.owns(d.loc.Socket()) {
		d.end(errors.New("the socket's path is no longer this daemon's"))
		return
	}
	now := d.options.Now()
	if d.options.Auto && now.Sub(time.UnixMilli(d.lastUse.Load())) >= idleEnd {
		d.end(errors.New("no session for hours"))
		return
	}
	if changed, err := d.config.reload(); err != nil {
		d.log.Warn("config.toml is not used as it is now", "error", err)
	} else if changed {
		d.log.Info("config.toml read again")
	}
	d.state.tick(d.now())
	d.arbitrations.tick()
	d.clones.tick()
	d.relays.tick()
	d.presences.tick(d.work)
	if d.coordinator != nil {
		d.coordinator.Tick()
	}
}

// errPanicked is what became of work that panicked.
var errPanicked = errors.New("the daemon failed; its log (knootd.log) says where")

// guard runs f and survives its panic: a daemon that ends takes the sessions of a machine with it.
func (d *daemon) guard(what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			d.log.Error("panic", "in", what, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	f()
}

// answer answers one request.
func (d *daemon) answer(ctx context.Context, req *socket.Request, conn *net.UnixConn) *reply {
	r := &reply{Response: failure(codeFailed, errPanicked.Error())}
	d.guard(req.Op, func() { r = d.dispatch(ctx, req, conn) })
	if after := r.after; after != nil {
		r.after = func() { d.guard(req.Op, after) }
	}
	return r
}

func (d *daemon) dispatch(ctx context.Context, req *socket.Request, conn *net.UnixConn) *reply {
	switch req.Op {
	case "hello":
		return &reply{Response: bodyOf(hello{Process: os.Getpid()})}
	case "hook":
		if req.Hook == nil {
			return &reply{Response: failure(codeMisuse, "a hook request without a hook")}
		}
		return d.hook(ctx, req.Hook)
	case "state":
		return &reply{Response: bodyOf(d.report())}
	case "stop":
		return &reply{Response: bodyOf(hello{Process: os.Getpid()}), after: func() { d.end(errors.New("told to stop")) }}
	case "handover":
		return d.handOver(req, conn)
	default:
		return &reply{Response: d.operate(ctx, req, conn)}
	}
}

// handOver gives the seat to the newer daemon that asked over conn.
func (d *daemon) handOver(req *socket.Request, conn *net.UnixConn) *reply {
	if !socket.NewerThan(req.Version, socket.Version) {
		return &reply{Response: failure(codeRefused, "the running daemon is not older; `knoot daemon --stop` ends it")}
	}
	if !d.handing.CompareAndSwap(false, true) {
		return &reply{Response: failure(codeRefused, "another daemon is taking over")}
	}
	defer d.handing.Store(false)
	if !d.server.owns(d.loc.Socket()) {
		return &reply{Response: failure(codeRefused, "the socket is no longer this daemon's")}
	}
	d.uncoordinate() // first, and while hooks are still answered: calls of agents take their time to end
	d.server.pause()
	d.server.drain(1, drainTime)
	d.clones.close()
	d.arbitrations.close()
	d.state.close()
	d.mail.close()
	if err := give(conn, d.server.listener, d.lock); err != nil {
		d.log.Warn("a newer daemon did not take over", "version", req.Version, "error", err)
		if err := d.state.load(d.now()); err != nil {
			d.end(err)
		}
		d.coordinate()
		d.server.proceed()
		_ = conn.Close()
		return &reply{taken: true}
	}
	d.log.Info("handed over", "version", req.Version)
	d.end(errHandedOver)
	_ = conn.Close()
	return &reply{taken: true}
}

func bodyOf(v any) *socket.Response {
	body, err := json.Marshal(v)
	if err != nil {
		return failure(codeFailed, "the answer cannot be encoded: "+err.Error())
	}
	return &socket.Response{Body: body}
}

// paused reports whether the file at path pauses knoot at now: it is empty, or holds a time in milliseconds that is still
// to come. One that cannot be read, or says something else, pauses: whoever made it wanted silence.
func paused(path string, now gitlog.Millis) bool {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false
	}
	until, err2 := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return err != nil || err2 != nil || gitlog.Millis(until) > now
}
