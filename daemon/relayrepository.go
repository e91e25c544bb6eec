package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

const (
	// openTime bounds what the opening of a repository waits for the relay.
	openTime = 10 * time.Second
	// maxRelayOutbox bounds what waits to be told to the relay; with more the repository is opened again, which tells all that
	// still counts. It has room for all that was missed and for what happens while that is told: else it would be opened again for good.
	maxRelayOutbox = 2 * maxMissed
	// longAway is how long a machine may have been away without reading first what happened before it asserts its claims again.
	longAway = time.Minute
	// quietFor is how long nothing more comes of what had happened, quietMost how long it is waited for: others may be at work there
	// all the time.
	quietFor  = 300 * time.Millisecond
	quietMost = 10 * time.Second
	// rotatedLately is how long after a change of the team's keys a starting daemon still reckons with claims by those before: by the
	// clock of whoever made the change.
	rotatedLately = gitlog.Millis(24 * 60 * 60 * 1000)
	// relayActs is how many acts go in one message: each is at most some kilobytes.
	relayActs = 10
)

// relayRepository is a repository at its relay: the mirror of what is so for all machines, and what is on its way there.
type relayRepository struct {
	link *relayLink
	d    *daemon
	a    *arbitration

	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	clones   []*openClone               // guarded by mu: those that are open, the first is asked for keys
	conn     wire.Conn                  // guarded by mu: on which it is open; nil: it is not
	since    time.Time                  // guarded by mu: when it was opened
	reopen   context.CancelFunc         // guarded by mu: has it opened again; nil: it is not open, or that is done already
	owing    bool                       // guarded by mu: since it was opened the relay was not told yet all that happened here before
	followed bool                       // guarded by mu: the mirror is what was so a moment ago
	problem  relayProblem               // guarded by mu: why it is not
	view     *arbiter.View              // guarded by mu: the mirror
	clock    relayClock                 // guarded by mu
	closed   time.Time                  // guarded by mu: when it was last open; zero: never
	names    relayNames                 // guarded by mu
	wasTill  time.Time                  // guarded by mu: until then names.was counts
	head     gitlog.RosterHead          // guarded by mu: of the roster that the relay was told
	lacking  bool                       // guarded by mu: the relay has a newer one
	grants   map[arbiter.ClaimID][]byte // guarded by mu: for claims of this machine
	tidied   int                        // guarded by mu: with so many grants those of claims that are over are forgotten
	kept     relayState                 // guarded by mu
	grace    time.Time                  // guarded by mu: until then the relay grants only what comes with a grant; zero: anything
	dirs     map[string]string          // guarded by mu: git directories by root
	outbox   []relayTold                // guarded by mu: what is to be told
	missed   []occurrence               // guarded by mu: what happened while it was not open
	owed     []occurrence               // guarded by mu: what of that is being told, since it was opened
	reached  arbiter.Order              // guarded by mu: the last place in the order of which the relay's answers said
	crossed  map[crossing]bool          // guarded by mu: those of which the others were told
	telling  bool                       // guarded by mu: something is being told
	told     chan struct{}              // guarded by mu: closed when nothing is to be told
	more     chan struct{}              // there is something in the outbox
	unopened []arbiter.Event            // guarded by mu: what waits for a newer state of the team
	changed  chan struct{}              // guarded by mu: closed at the next change of the mirror

	memory     chan struct{}              // there may be something of the memory to tell, or to look at again
	toldMemory map[gitlog.WriterID]uint64 // of tellMemory: the last segment that the relay was told, of each clone's memory
}

// relayTold is what the relay is told: an event of the own arbiter, or a request.
type relayTold struct {
	happened *occurrence
	late     bool            // it happened while the relay could not be told
	request  arbiter.Request // of Append
}

// relayClock is the relay's clock, as far as it is known.
type relayClock struct {
	at   gitlog.Millis
	when time.Time // when it said so, by this process's clock
}

func (c relayClock) now() gitlog.Millis {
	return c.at + gitlog.Millis(max(time.Since(c.when).Milliseconds(), 0))
}

// local is a moment of the relay's clock by this machine's.
func (c relayClock) local(at gitlog.Millis) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(int64(at)-int64(c.now())) * time.Millisecond)
}

func newRelayRepository(l *relayLink, a *arbitration) *relayRepository {
	r := &relayRepository{link: l, d: l.d, a: a, view: arbiter.New(), names: newRelayNames(l.device.ID), grants: map[arbiter.ClaimID][]byte{}, crossed: map[crossing]bool{},
		dirs: map[string]string{}, tidied: grantsTogether, told: make(chan struct{}), more: make(chan struct{}, 1), changed: make(chan struct{}),
		memory: make(chan struct{}, 1), toldMemory: map[gitlog.WriterID]uint64{}}
	close(r.told)
	r.ctx, r.cancel = context.WithCancel(l.ctx)
	r.recall()
	return r
}

// add has one more clone; true where it is the first.
func (r *relayRepository) add(oc *openClone) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clones = append(r.clones, oc)
	return len(r.clones) == 1
}

// remove has one clone less; true where it was the last.
func (r *relayRepository) remove(oc *openClone) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clones = slices.DeleteFunc(r.clones, func(c *openClone) bool { return c == oc })
	return len(r.clones) == 0
}

func (r *relayRepository) clone() *openClone {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.clones) == 0 {
		return nil
	}
	return r.clones[0]
}

// look takes over the state of the team as it is here. Its errors are sentences.
func (r *relayRepository) look() error {
	oc := r.clone()
	if oc == nil {
		return errors.New("the clone is closed")
	}
	roster := oc.clone.Roster()
	r.mu.Lock()
	same, first := r.names.blinding != nil && r.names.blinding.Roster == roster, r.names.blinding == nil
	r.mu.Unlock()
	if same {
		return nil
	}
	b, err := oc.clone.Blinding()
	if err != nil {
		return err
	}
	var was *gitlog.Blinding
	if first {
		// Others may hold claims by the tokens before, which this daemon has not seen.
		if was, err = oc.clone.BlindingBefore(r.ctx, b, max(gitlog.Now(), rotatedLately)-rotatedLately); err != nil {
			r.d.log.Warn("what tokens were made with before is not known", "error", err)
		}
	}
	r.mu.Lock()
	if first && r.names.blinding == nil && was != nil {
		r.names.by(was)
	}
	if r.names.by(b) {
		r.wasTill = time.Now().Add(time.Duration(arbiter.Lease) * time.Millisecond)
	}
	snapshot := r.view.Snapshot()
	r.mu.Unlock()
	// What came sealed to an epoch that was not known here yet opens now.
	found := openSnapshot(b, &snapshot)
	r.mu.Lock()
	r.learn(b, found)
	r.mu.Unlock()
	r.remembered()
	return nil
}

// blinding is what tokens are made with now; nil before the first look.
func (r *relayRepository) blinding() *gitlog.Blinding {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.names.blinding
}

// serve keeps the repository open on a connection until that ends.
func (r *relayRepository) serve(conn wire.Conn) {
	tries := newRetries()
	for r.ctx.Err() == nil {
		pause := time.NewTimer(tries.pause())
		select {
		case <-pause.C:
		case <-r.ctx.Done():
		case <-conn.Done():
			pause.Stop()
			return
		}
		err := errPanicked
		r.d.guard("relay", func() { err = r.follow(conn) })
		tries.ended(r.shut(err))
	}
}

// shut notes that the repository is not open any more, and returns how long it was.
func (r *relayRepository) shut(err error) (lasted time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.followed = false
	if r.conn != nil {
		r.conn, r.reopen, r.closed = nil, nil, time.Now()
		lasted = r.closed.Sub(r.since)
	}
	if err != nil {
		r.problem = problemOf(err)
	}
	// What happened is told when it is opened again, late, unless it is just that of which the relay says that it is none. What the
	// relay was asked for goes by what is so then; of an overlap that it was not told it may be told when that comes up again.
	r.missUntold()
	for _, each := range r.outbox {
		if w, ok := each.request.(arbiter.Write); ok && w.Crosses != (arbiter.Token{}) {
			delete(r.crossed, crossing{w.Who.Session, w.Crosses, w.Wants[0].Path.Own})
		}
	}
	r.outbox = nil
	r.idle()
	return lasted
}

// follow opens the repository and takes in what happens there until either side ends it.
func (r *relayRepository) follow(conn wire.Conn) error {
	if err := r.look(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	opening, opened := context.WithTimeout(ctx, openTime)
	defer opened()
	stream, err := conn.Open(opening)
	if err != nil {
		return err
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { stream.Reset(0) })()
	r.mu.Lock()
	if !r.kept.follows(r.link.sequencer()) {
		// Another relay, whose order has nothing to do with that of the one before.
		r.view, r.grants, r.closed = arbiter.New(), map[arbiter.ClaimID][]byte{}, time.Time{}
	}
	ask := &wire.Open{Team: r.a.id.team, Repository: r.a.id.repository, Head: r.names.blinding.Roster.Head, Position: r.view.Position()}
	away := !r.closed.IsZero() && time.Since(r.closed) > longAway
	r.mu.Unlock()
	if ask.Token, err = OperatorToken(r.d.options.Getenv, r.d.home, r.link.at.address); err != nil {
		r.d.log.Warn("the operator's token cannot be read", "error", err)
	}
	_ = stream.SetDeadline(time.Now().Add(openTime))
	if err := stream.Send(wire.Encode(ask)); err != nil {
		return err
	}
	answer, err := r.meet(ctx, stream, ask.Head)
	if err != nil {
		return err
	}
	if err := r.restore(stream, answer); err != nil {
		return err
	}
	_ = stream.SetDeadline(time.Time{})
	opened()
	r.link.hear()
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	came := make(chan struct{}, 1)
	work.Go(func() {
		r.d.guard("relay", func() {
			if away {
				r.awaitQuiet(ctx, came)
			}
			r.begin(conn, ask.Head, cancel)
			work.Go(func() { r.d.guard("relay", func() { r.tellMemory(ctx, conn) }) })
			r.tell(ctx, conn)
		})
	})
	for {
		m, err := wire.ReceiveMessage(stream)
		if errors.Is(err, wire.ErrUnknown) {
			continue
		}
		if err != nil {
			return err
		}
		r.link.hear()
		switch m := m.(type) {
		case *wire.Events:
			select {
			case came <- struct{}{}:
			default:
			}
			r.take(m)
		case *wire.GrantIssued:
			r.mu.Lock()
			r.keepGrant(m.Claim, m.Grant)
			r.mu.Unlock()
		case *wire.Farewell:
			return errors.New("the relay ends, and says to come back")
		}
	}
}

// meet brings the two rosters together: the relay gets the entries that it lacks.
func (r *relayRepository) meet(ctx context.Context, stream wire.Stream, head gitlog.RosterHead) (*wire.Opened, error) {
	for {
		m, err := wire.ReceiveMessage(stream)
		if err != nil {
			return nil, err
		}
		switch m := m.(type) {
		case *wire.Opened:
			if m.Head.Seq > head.Seq {
				r.behind()
			}
			return m, nil
		case *wire.RosterWanted:
			oc := r.clone()
			if oc == nil {
				return nil, errors.New("the clone is closed")
			}
			entries, err := oc.clone.RosterEntries(ctx, head)
			if err != nil {
				return nil, err
			}
			if m.From > uint64(len(entries)) {
				return nil, fmt.Errorf("the relay asks for entry %d of a roster that has %d", m.From, len(entries))
			}
			err = wire.SendRoster(func(m wire.Message) error { return stream.Send(wire.Encode(m)) }, m.From, uint64(len(entries))-m.From,
				func(seq uint64) ([]byte, error) { return entries[seq], nil })
			if err != nil {
				return nil, err
			}
		case *wire.RosterPart: // what is lacking here comes from git, with the keys
		default:
			return nil, fmt.Errorf("the relay answers the opening with %T", m)
		}
	}
}

// behind fetches the roster that the relay has.
func (r *relayRepository) behind() {
	r.mu.Lock()
	again := r.lacking
	r.lacking = true
	r.mu.Unlock()
	oc := r.clone()
	switch {
	case oc == nil:
	case again:
		oc.sync.fetchSoon()
	default:
		oc.sync.fetchNow() // no claim is asked for until it is here
	}
}

// restore takes the state that the relay begins with.
func (r *relayRepository) restore(stream wire.Stream, opened *wire.Opened) error {
	const maxSnapshot = 256 << 20
	if opened.Snapshot > maxSnapshot {
		return fmt.Errorf("the relay's snapshot has %d bytes", opened.Snapshot)
	}
	var data []byte
	for uint64(len(data)) < opened.Snapshot {
		m, err := wire.ReceiveMessage(stream)
		if err != nil {
			return err
		}
		part, ok := m.(*wire.SnapshotPart)
		if !ok {
			return fmt.Errorf("the relay sends %T instead of its snapshot", m)
		}
		data = append(data, part.Bytes...)
		_ = stream.SetDeadline(time.Now().Add(openTime))
	}
	var view *arbiter.View
	var found []foundNames
	b := r.blinding()
	if len(data) > 0 {
		s, err := wire.DecodeSnapshot(data)
		if err != nil {
			return err
		}
		view, found = arbiter.Restore(*s), openSnapshot(b, s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock = relayClock{opened.Now, time.Now()}
	if r.grace = (time.Time{}); opened.Grace > 0 {
		r.grace = time.Now().Add(time.Duration(opened.Grace) * time.Millisecond)
	}
	if view != nil {
		r.view, r.followed = view, true
		r.learn(b, found)
		r.keepSnapshot(data)
	}
	r.d.log.Info("the repository is open at the relay", "relay", r.link.at.address, "snapshot", len(data))
	return nil
}

// foundNames are the names that were sealed beside something in a snapshot.
type foundNames struct {
	detail       relayDetail
	asked        bool          // it is asked about again, and remembered
	sum          [32]byte      // where it is: the SHA-256 of the sealed text
	opened       *openedDetail // what was sealed there, for whatever; nil: it does not open
	began        arbiter.Token // the session that says of itself what is in detail; zero: it says something else
	own          bool          // it is one of this machine
	path, branch arbiter.Token
}

// openSnapshot opens what is sealed in a snapshot.
func openSnapshot(b *gitlog.Blinding, s *arbiter.Snapshot) (found []foundNames) {
	open := func(kind gitlog.EntryKind, who *arbiter.Who, path arbiter.Token, sealed []byte) {
		if len(sealed) == 0 {
			return
		}
		f := foundNames{asked: askedAbout(kind), opened: openDetail(b, sealed)}
		if f.asked {
			f.sum = sha256.Sum256(sealed)
		}
		if o := f.opened; o != nil && o.belongs(kind, who.Session) {
			f.detail, f.path, f.branch = o.detail, path, who.Branch
			if kind == gitlog.SessionStarted {
				f.began, f.own = who.Session, who.Device == b.Device() && o.header.Device == b.Device()
			}
		}
		found = append(found, f)
	}
	for _, x := range slices.Backward(s.Sessions) { // of two that are one session the one that was seen last counts
		open(gitlog.SessionStarted, &x.Who, arbiter.Token{}, x.Detail)
		open(gitlog.IntentDeclared, &x.Who, arbiter.Token{}, x.Intent)
		open(gitlog.PlanDeclared, &x.Who, arbiter.Token{}, x.Plan)
	}
	for _, x := range s.Claims {
		open(gitlog.ClaimAcquired, &x.Who, x.Path.Own, x.Detail)
	}
	for _, x := range s.Writes {
		open(gitlog.FileWritten, &x.Who, x.Path.Own, x.Detail)
	}
	return found
}

// learn takes over what was found in a snapshot by b. mu is held.
func (r *relayRepository) learn(b *gitlog.Blinding, found []foundNames) {
	for _, f := range found {
		if f.asked && r.names.blinding == b { // by another state of the team it may open, or not open any more
			r.names.remember(f.sum, f.opened)
		}
		if f.began != (arbiter.Token{}) {
			r.names.sessions[f.began] = f.detail
			if key := (sessionKey{Agent: f.detail.Agent, ID: f.detail.Session}); f.own && r.names.tokens[key] == (arbiter.Token{}) {
				r.names.tokens[key] = f.began // it began under an earlier daemon, maybe by an earlier epoch
			}
		}
		r.names.learn(f.detail, f.path, f.branch)
	}
}

// awaitQuiet waits until what happened meanwhile has been read.
func (r *relayRepository) awaitQuiet(ctx context.Context, came <-chan struct{}) {
	enough := time.After(quietMost)
	for {
		select {
		case <-came:
		case <-time.After(quietFor):
			return
		case <-enough:
			return
		case <-ctx.Done():
			return
		}
	}
}

// begin has claims asked for there from now on, and tells what the relay does not know: sessions, and what they hold. reopen ends
// the following, so that it begins again.
func (r *relayRepository) begin(conn wire.Conn, head gitlog.RosterHead, reopen context.CancelFunc) {
	r.mu.Lock()
	r.conn, r.since, r.reopen, r.problem, r.head, r.owing, r.followed = conn, time.Now(), reopen, relayProblem{}, head, true, true
	missed := r.missed
	r.reached = r.view.Position()
	r.mu.Unlock()
	r.tellMissed(missed, r.assert(r.ctx, conn, false))
	r.mu.Lock()
	r.owing = len(r.outbox) > 0
	r.mu.Unlock()
}

// connection is the one on which claims are asked for; nil: they are not.
func (r *relayRepository) connection() wire.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conn
}

// open is the connection, where it is worth to wait for an answer on it.
func (r *relayRepository) open() wire.Conn {
	if conn := r.connection(); conn != nil && r.link.answers(conn) {
		return conn
	}
	return nil
}

// prompt says whether a hook waits for the relay's answer: it does answer, and has heard of all that happened before.
func (r *relayRepository) prompt() bool {
	r.mu.Lock()
	conn, owing := r.conn, r.owing
	r.mu.Unlock()
	return !owing && r.link.answers(conn)
}

// follows says whether what is known of other machines is so: their events come, and the relay was heard lately.
func (r *relayRepository) follows() bool {
	r.mu.Lock()
	followed := r.followed
	r.mu.Unlock()
	return followed && r.link.lately()
}

// observe takes in what the own arbiter says has happened, for the relay. The arbitration is locked.
func (all *relayLinks) observe(a *arbitration, happened []occurrence) {
	r := a.away.Load()
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		r.miss(happened...)
		return
	}
	for i := range happened {
		r.outbox = append(r.outbox, relayTold{happened: &happened[i]})
	}
	r.tellMore()
}

// request has the relay told of a request.
func (r *relayRepository) request(requests ...arbiter.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return
	}
	for _, q := range requests {
		r.outbox = append(r.outbox, relayTold{request: q})
	}
	r.tellMore()
}

// tellMore wakes whoever tells. mu is held.
func (r *relayRepository) tellMore() {
	select {
	case <-r.told:
		r.told = make(chan struct{})
	default:
	}
	if len(r.outbox) > maxRelayOutbox && r.reopen != nil {
		r.d.log.Warn("the relay does not keep up")
		r.reopen()
		r.reopen = nil
	}
	r.wake()
}

// wake has what waits told.
func (r *relayRepository) wake() {
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// idle says that nothing is to be told. mu is held.
func (r *relayRepository) idle() {
	if len(r.outbox) > 0 || r.telling {
		return
	}
	select {
	case <-r.told:
	default:
		close(r.told)
	}
}

// flushed waits until all that was to be told is.
func (r *relayRepository) flushed(ctx context.Context) {
	for {
		r.mu.Lock()
		told := r.told
		done := len(r.outbox) == 0 && !r.telling
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-told:
		case <-ctx.Done():
			return
		}
	}
}

// tell tells the relay what happens here, in its order, until ctx ends.
func (r *relayRepository) tell(ctx context.Context, conn wire.Conn) {
	for {
		select {
		case <-r.more:
		case <-ctx.Done():
			return
		case <-conn.Done():
			return
		}
		r.mu.Lock()
		outbox := r.outbox
		r.outbox, r.telling = nil, len(outbox) > 0
		r.mu.Unlock()
		rest := r.tellAll(ctx, conn, outbox)
		r.mu.Lock()
		r.outbox = append(rest, r.outbox...)
		r.telling, r.owing = false, len(rest) > 0
		if len(r.outbox) == 0 && len(r.owed) > 0 {
			r.owed = nil
			r.kept.append(&relayRecord{Told: true})
		}
		r.idle()
		r.mu.Unlock()
	}
}

// tellAll tells the relay what happened, in its order. It returns what the relay did not take because its tokens go by another
// roster, or because it did not answer: that is told again.
func (r *relayRepository) tellAll(ctx context.Context, conn wire.Conn, outbox []relayTold) (rest []relayTold) {
	var acts []arbiter.Request
	begun := 0 // what acts are of
	send := func(end int) (taken bool) {
		for part := range slices.Chunk(acts, relayActs) {
			r.mu.Lock()
			head := r.names.blinding.Roster.Head
			r.mu.Unlock()
			if !r.post(ctx, conn, &wire.Append{Repository: r.a.id.repository, Head: head, Acts: part}) {
				return false
			}
		}
		acts, begun = nil, end
		return true
	}
	var roots []string
	for _, each := range outbox {
		if each.happened != nil {
			roots = append(roots, each.happened.Root)
		}
	}
	r.locate(ctx, roots...)
	for i, each := range outbox {
		requests := []arbiter.Request{each.request}
		if each.happened != nil {
			if requests = r.translate(each.happened); each.late {
				requests = r.late(each.happened, requests)
			}
		}
		for _, q := range requests {
			if release, ok := q.(arbiter.Release); ok {
				if !send(i) {
					return outbox[begun:]
				}
				if !r.post(ctx, conn, &wire.Release{Repository: r.a.id.repository, Release: release}) {
					return outbox[i:]
				}
				continue
			}
			acts = append(acts, q)
		}
		if len(acts) >= relayActs && !send(i+1) {
			return outbox[begun:]
		}
	}
	if !send(len(outbox)) {
		return outbox[begun:]
	}
	return nil
}

// post asks for something whose answer changes nothing here. false: the relay does not take it by this roster, or did not answer.
func (r *relayRepository) post(ctx context.Context, conn wire.Conn, m wire.Message) bool {
	if !fits(m) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, relayRequest)
	defer cancel()
	answer, err := r.link.ask(ctx, conn, m)
	if err == nil {
		r.reach(answer)
		return true
	}
	r.refused(err)
	var fault *wire.Fault
	return errors.As(err, &fault) && fault.Code != wire.RosterStale
}

// reach notes how far the order goes by an answer.
func (r *relayRepository) reach(answer wire.Message) {
	if a, ok := answer.(*wire.Answer); ok {
		r.mu.Lock()
		if a.Position.Compare(r.reached) > 0 {
			r.reached = a.Position
		}
		r.mu.Unlock()
	}
}

// refused looks at why the relay did not do something.
func (r *relayRepository) refused(err error) {
	var fault *wire.Fault
	if !errors.As(err, &fault) {
		return
	}
	switch fault.Code {
	case wire.RosterStale:
		r.mu.Lock()
		head := r.names.blinding.Roster.Head
		r.mu.Unlock()
		switch {
		case head == fault.Head: // it came in since
			r.again()
		case head.Seq <= fault.Head.Seq:
			r.behind()
		} // else the relay is shown it in a moment, and asked for all claims then
		return
	case wire.Grace:
		r.mu.Lock()
		r.grace = time.Now().Add(time.Duration(fault.After) * time.Millisecond)
		r.mu.Unlock()
	}
	r.d.log.Debug("the relay refuses", "code", fault.Code.String(), "error", fault.Text)
}

// again tells the relay what it did not take, and asks for what it does not know, beside the connection.
func (r *relayRepository) again() {
	r.wake()
	if conn := r.open(); conn != nil {
		r.link.work(func() { r.tellMissed(nil, r.assert(r.ctx, conn, false)) })
	}
}

// fits says whether a message can be sent.
func fits(m wire.Message) (ok bool) {
	defer func() { ok = recover() == nil }()
	wire.Encode(m)
	return true
}

// locate finds the git directories of worktrees of this machine. It may ask git, about one that is gone each time: so it is called once
// for all that is to be told together.
func (r *relayRepository) locate(ctx context.Context, roots ...string) {
	tried := map[string]bool{"": true}
	for _, root := range roots {
		if tried[root] {
			continue
		}
		tried[root] = true
		r.mu.Lock()
		known := r.dirs[root] != ""
		r.mu.Unlock()
		if known {
			continue
		}
		dir := ""
		if wt := r.d.clones.opened(root); wt != nil {
			dir = wt.repo.GitDir
		} else if repo, err := gitlog.FindRepository(ctx, root); err == nil && repo.Root == root {
			dir = repo.GitDir
		}
		r.mu.Lock()
		r.dirs[root] = dir
		r.mu.Unlock()
	}
}

// translate makes of an event of the own arbiter what the relay is asked for.
func (r *relayRepository) translate(o *occurrence) []arbiter.Request {
	if o.Key == (sessionKey{}) || o.Root == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	dir := r.dirs[o.Root]
	if dir == "" {
		return nil
	}
	who := r.names.who(party{Key: o.Key, Subagent: o.Subagent, Person: o.Person, Root: o.Root, Branch: o.OnBranch}, dir)
	now := r.clock.now()
	switch o.Kind {
	case gitlog.SessionStarted:
		return []arbiter.Request{r.started(who, o.Key, o.Detail, o.OnBranch)}
	case gitlog.IntentDeclared, gitlog.PlanDeclared:
		return []arbiter.Request{declare(who, o.Kind, r.sealText(o.Kind, who.Session, o.Text))}
	case gitlog.ClaimRenewed:
		renew := arbiter.Renew{Who: who}
		if o.Claim != (arbiter.ClaimID{}) {
			renew.Claims = []arbiter.ClaimID{o.Claim}
		}
		return []arbiter.Request{renew}
	case gitlog.FileWritten, gitlog.PathRemoved, gitlog.UngatedWrite:
		path, ok := r.names.path(o.Path)
		if !ok {
			return nil
		}
		want := arbiter.Want{ID: o.Claim, Path: path, Class: arbiter.File, Removed: o.Kind == gitlog.PathRemoved, Hub: o.Class == arbiter.Hub}
		want.Detail = r.names.seal(gitlog.FileWritten, who.Session, now, relayDetail{Path: []byte(o.Path), Branch: o.OnBranch})
		return []arbiter.Request{arbiter.Write{Who: who, Wants: []arbiter.Want{want}}}
	case gitlog.ClaimLeft:
		path, ok := r.names.path(o.Path)
		if !ok {
			return nil
		}
		return []arbiter.Request{arbiter.Leave{Who: who, Wants: []arbiter.Want{{ID: o.Claim, Path: path, Class: arbiter.File,
			Detail: r.names.seal(gitlog.ClaimLeft, who.Session, now, relayDetail{Path: []byte(o.Path), Branch: o.OnBranch})}}}}
	case gitlog.ClaimReleased:
		r.dropGrant(o.Claim)
		if o.Reason == arbiter.Expired {
			return nil // the relay knows the time
		}
		release := arbiter.Release{Who: who, Claims: []arbiter.ClaimID{o.Claim}, Reason: o.Reason}
		if o.Reason == arbiter.Released {
			return []arbiter.Request{release, arbiter.Clean{Who: who, Claims: release.Claims}}
		}
		if o.Reason == arbiter.Stopped {
			return []arbiter.Request{release, arbiter.Idle{Who: who}}
		}
		return []arbiter.Request{release}
	case gitlog.BranchMoved:
		return []arbiter.Request{arbiter.Move{Who: who}}
	case gitlog.SessionEnded:
		return []arbiter.Request{arbiter.End{Who: who, Reason: o.Reason}}
	}
	return nil
}

// started declares a session. mu is held.
func (r *relayRepository) started(who arbiter.Who, key sessionKey, detail []byte, branch string) arbiter.Declare {
	own := decodeSessionDetail(detail)
	return declare(who, gitlog.SessionStarted, r.names.seal(gitlog.SessionStarted, who.Session, r.clock.now(),
		relayDetail{Agent: key.Agent, Session: key.ID, Name: own.Name, Owner: own.Owner, Private: own.Private, Branch: branch}))
}

// sealText seals an intent or a plan; nil for none. mu is held.
func (r *relayRepository) sealText(kind gitlog.EntryKind, session arbiter.Token, text string) []byte {
	if text == "" {
		return nil
	}
	return r.names.seal(kind, session, r.clock.now(), relayDetail{Text: text})
}

// tick follows the roster.
func (r *relayRepository) tick() {
	if err := r.look(); err != nil {
		return
	}
	r.mu.Lock()
	if r.names.was != nil && time.Now().After(r.wasTill) {
		r.names.forgetWas()
	}
	over := !r.grace.IsZero() && time.Now().After(r.grace)
	if over {
		r.grace = time.Time{}
	}
	conn, head, told := r.conn, gitlog.RosterHead{}, r.head
	if r.names.blinding != nil {
		head = r.names.blinding.Roster.Head
	}
	lacking := r.lacking && head == told
	if conn != nil && head == told && !r.lacking && !r.telling && len(r.outbox) > 0 {
		r.wake() // for what the relay did not answer
	}
	r.mu.Unlock()
	if over {
		r.again() // for what came without a grant
	}
	r.tidy()
	switch {
	case lacking:
		r.link.work(func() { r.compareRoster(conn, head) })
	case conn != nil && head != told && r.link.answers(conn):
		r.link.work(func() { r.showRoster(conn, head) })
	}
}

// showRoster has the relay take over a newer roster, and asks for all claims again: their tokens may be others.
func (r *relayRepository) showRoster(conn wire.Conn, head gitlog.RosterHead) {
	opened, err := r.offerRoster(conn, head)
	if err != nil {
		r.refused(err)
		return
	}
	r.mu.Lock()
	r.head, r.lacking = head, opened.Head.Seq > head.Seq
	r.mu.Unlock()
	r.tellMissed(nil, r.assert(r.ctx, conn, true))
	r.wake() // for what was not taken before
}

// compareRoster finds out whether the relay has a newer roster than this machine, and fetches that if so: a change of the team may have
// been this machine's own, and what git brings may be here by now.
func (r *relayRepository) compareRoster(conn wire.Conn, head gitlog.RosterHead) {
	if !r.link.answers(conn) {
		r.behind()
		return
	}
	opened, err := r.offerRoster(conn, head) // it fetches a newer one
	if err != nil || opened.Head.Seq > head.Seq {
		return
	}
	r.mu.Lock()
	if r.head == head {
		r.lacking = false
	}
	r.mu.Unlock()
	r.wake() // for what was not taken before
}

func (r *relayRepository) offerRoster(conn wire.Conn, head gitlog.RosterHead) (*wire.Opened, error) {
	ctx, cancel := context.WithTimeout(r.ctx, openTime)
	defer cancel()
	stream, err := conn.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { stream.Reset(0) })()
	if err := stream.Send(wire.Encode(&wire.Roster{Repository: r.a.id.repository, Head: head})); err != nil {
		return nil, err
	}
	return r.meet(ctx, stream, head)
}
