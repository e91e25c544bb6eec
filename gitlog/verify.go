package gitlog

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// VerifyOptions says what a verification may go by besides the repository.
type VerifyOptions struct {
	Home     *Home                 // whose known.toml remembers the team's highest roster head, and whose key opens the clone's index; nil: nobody's
	Progress func(done, total int) // refs; may be nil
}

// VerifyReport is `verify --json`. Segments and entries that stand in several refs count once.
type VerifyReport struct {
	Writers  int       `json:"writers"`
	Segments int       `json:"segments"`
	Entries  int       `json:"entries"` // as their segments' headers say
	Problems []Problem `json:"problems"`
}

// Verify checks all that a repository holds of knoot, without a key: names of refs, the roster, each log's signatures and chain,
// what the roster allowed at the time, cuts and ended epochs; that what others saw of a log, and what this clone kept, is still
// there, and what it remembers; that nobody published another's sealed text. It works in a clone, and in a bare repository such as the host's. A problem
// names the ref and the segment (of a roster: the entry), 0 where the ref as a whole is wrong. An error is none of these:
// the repository could not be read.
func Verify(ctx context.Context, repo *Repository, o VerifyOptions) (*VerifyReport, error) {
	objects, err := openObjects(ctx, repo, true)
	if err != nil {
		return nil, err
	}
	defer objects.close()
	v := &verification{
		VerifyOptions: o, repo: repo, objects: objects, report: &VerifyReport{Problems: []Problem{}},
		logs: map[string][]placedRef{}, digests: map[logName]map[uint64]seenAt{}, broken: map[logName]bool{},
		sealed: map[Digest]sealedAt{}, done: map[string]indexTip{}, writers: map[WriterID]bool{}, seen: map[Tip]string{},
	}
	if err := v.readRefs(ctx); err != nil {
		return nil, err
	}
	if err := v.settle(ctx); err != nil {
		return nil, err
	}
	if err := v.readRosters(ctx); err != nil {
		return nil, err
	}
	if err := v.readRequests(ctx); err != nil {
		return nil, err
	}
	if err := v.readLogs(ctx); err != nil {
		return nil, err
	}
	v.compareSeen()
	v.compareCuts()
	if err := v.compareRemembered(); err != nil {
		return nil, err
	}
	if err := v.compareKept(ctx); err != nil {
		return nil, err
	}
	v.report.Writers = len(v.writers)
	slices.SortStableFunc(v.report.Problems, func(a, b Problem) int { return cmp.Or(cmp.Compare(a.Ref, b.Ref), cmp.Compare(a.Seq, b.Seq)) })
	v.report.Problems = slices.Compact(v.report.Problems)
	return v.report, nil
}

type verification struct {
	VerifyOptions
	repo    *Repository
	objects *objectStore
	report  *VerifyReport

	team       TeamID // zero: that of the roster which is here
	repository RepositoryID
	roster     *Roster

	logs     map[string][]placedRef // by namespace
	rosters  []placedRef
	requests []placedRef

	digests map[logName]map[uint64]seenAt // of each segment that is good, and where it was found first
	broken  map[logName]bool              // logs that were not read to their end
	sealed  map[Digest]sealedAt           // sealed texts, by their digest
	done    map[string]indexTip           // commits that were checked in another namespace, by place, start and id
	writers map[WriterID]bool
	seen    map[Tip]string // what a segment says it had read, and the ref that says so
}

type placedRef struct {
	ref
	namespace string
	place     refPlace
}

type seenAt struct {
	digest Digest
	ref    string
}

type sealedAt struct {
	ref     string
	seq     uint64
	created Millis
	file    Digest
}

func (v *verification) wrong(ref string, seq uint64, format string, args ...any) {
	v.report.Problems = append(v.report.Problems, Problem{Ref: ref, Seq: seq, What: fmt.Sprintf(format, args...)})
}

// readRefs sorts the refs by what they are.
func (v *verification) readRefs(ctx context.Context) error {
	found, broken, err := openRefs(v.repo).list(ctx, ownRefs, keptRefs, inboxRefs)
	if err != nil {
		return err
	}
	for _, name := range broken {
		v.wrong(name, 0, "git cannot read this ref")
	}
	for _, r := range found {
		namespace, place, ok := refPlaceOf(r.Name)
		switch {
		case !ok || r.Symref != "":
			v.wrong(r.Name, 0, "no ref of knoot's has such a name: it is junk")
		case place.Roster:
			v.rosters = append(v.rosters, placedRef{r, namespace, place})
		case place.Request != nil:
			v.requests = append(v.requests, placedRef{r, namespace, place})
		default:
			v.logs[namespace] = append(v.logs[namespace], placedRef{r, namespace, place})
		}
	}
	return nil
}

// refPlaceOf takes a ref of any of the namespaces apart. A remote's name may hold slashes.
func refPlaceOf(name string) (namespace string, place refPlace, ok bool) {
	for _, namespace := range []string{ownRefs, keptRefs} {
		if tail, in := strings.CutPrefix(name, namespace); in {
			place, ok := parseRefPlace(tail)
			return namespace, place, ok
		}
	}
	for at := len(inboxRefs); at < len(name); at++ {
		if name[at] == '/' {
			if place, ok := parseRefPlace(name[at+1:]); ok {
				return name[:at+1], place, true
			}
		}
	}
	return "", refPlace{}, false
}

// settle finds which team and repository it should be, where the repository says so.
func (v *verification) settle(ctx context.Context) error {
	settings, _, _, err := findSettings(ctx, v.repo)
	if errors.Is(err, ErrNotInitialised) {
		return nil // a host that has the logs alone
	}
	if err != nil {
		return err
	}
	v.team, v.repository = settings.Team, settings.Repository
	return nil
}

// readRosters verifies each chain and goes by the longest.
func (v *verification) readRosters(ctx context.Context) error {
	states := make([]*Roster, len(v.rosters))
	best := -1
	for i, r := range v.rosters {
		chain, err := readRosterChain(ctx, v.objects, r.Hash)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			v.wrong(r.Name, 0, "the roster cannot be read: %v", err)
			continue
		}
		team := v.team
		if team == (TeamID{}) && len(chain) > 0 {
			team = teamOf(chain[0])
		}
		state, err := VerifyRoster(team, chain)
		switch {
		case err != nil && state == nil:
			v.wrong(r.Name, 0, "%v", err)
			continue
		case err != nil:
			v.wrong(r.Name, state.Head.Seq+1, "%v", err)
		case state.Newer != nil:
			v.wrong(r.Name, state.Head.Seq+1, "%v", state.Newer)
		}
		states[i] = state
		if best < 0 || state.Head.Seq > states[best].Head.Seq {
			best = i
		}
	}
	if best < 0 {
		v.wrong(rosterRef, 0, "the team's roster is not here, so that nothing says who may have written what")
		return nil
	}
	v.roster, v.team = states[best], states[best].Team
	for i, r := range v.rosters {
		state := states[i]
		if state == nil || i == best {
			continue
		}
		for seq, hash := range state.hashes {
			if v.roster.hashes[seq] != hash {
				v.wrong(r.Name, uint64(seq), "the roster parts here from %s: one of the two was forged, or a host shows two teams", v.rosters[best].Name)
				break
			}
		}
		if state.Head.Seq < v.roster.Head.Seq && strings.HasPrefix(r.Name, inboxRefs) && v.roster.Has(state.Head.Seq, state.Head.Hash.String()) {
			v.wrong(r.Name, state.Head.Seq+1, "the host shows the roster up to entry %d, and it went up to %d when this clone accepted it", state.Head.Seq, v.roster.Head.Seq)
		}
	}
	if v.Home == nil {
		return nil
	}
	known, err := v.Home.Known()
	if err != nil {
		return err
	}
	if pin := known.Teams[v.team.String()]; pin.Head != "" && !v.roster.Has(pin.HeadSeq, pin.Head) {
		v.wrong(v.rosters[best].Name, pin.HeadSeq, "the roster does not hold entry %d, %s, which this machine has seen: it was rolled back, or is another", pin.HeadSeq, pin.Head)
	}
	return nil
}

// readRequests looks at the requests to join, each of which only its own device can have made.
func (v *verification) readRequests(ctx context.Context) error {
	if v.roster == nil {
		return nil
	}
	for i, r := range v.requests {
		if i == maxRequestsRead {
			v.wrong(r.Name, 0, "it is one of %d requests to join, more than anybody reads", len(v.requests))
			break
		}
		request, err := readRequest(ctx, v.objects, r.Hash, v.team)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && request.Device != *r.place.Request {
			err = fmt.Errorf("it is device %s's", request.Device)
		}
		if err != nil {
			v.wrong(r.Name, 0, "no request to join: %v", err)
		}
	}
	return nil
}

// readLogs walks all logs, generation by generation.
func (v *verification) readLogs(ctx context.Context) error {
	total, done := 0, 0
	for _, logs := range v.logs {
		total += len(logs)
	}
	for _, namespace := range slices.Sorted(maps.Keys(v.logs)) {
		logs := v.logs[namespace]
		slices.SortFunc(logs, func(a, b placedRef) int {
			return cmp.Or(cmp.Compare(a.place.Log, b.place.Log), bytes.Compare(a.place.Writer[:], b.place.Writer[:]), cmp.Compare(a.place.Generation, b.place.Generation))
		})
		var at indexTip
		var of logName
		for _, log := range logs {
			if name := (logName{log.place.Writer, log.place.Log}); name != of {
				of, at = name, indexTip{}
			}
			var err error
			if at, err = v.readLog(ctx, log, at); err != nil {
				return err
			}
			done++
			if v.Progress != nil {
				v.Progress(done, total)
			}
		}
	}
	return nil
}

// readLog checks a generation after at and returns how far it is good.
func (v *verification) readLog(ctx context.Context, log placedRef, at indexTip) (indexTip, error) {
	name := logName{log.place.Writer, log.place.Log}
	stop := func(err error) (indexTip, error) {
		if ctx.Err() != nil {
			return at, ctx.Err()
		}
		v.broken[name] = true
		v.wrong(log.Name, at.Seq+1, "%v", err)
		return at, nil
	}
	if v.roster != nil && v.roster.DeviceKey(log.place.Writer.Device()) == nil {
		return stop(fmt.Errorf("the device %s is no member's", log.place.Writer.Device()))
	}
	commits, _, err := v.objects.readChain(ctx, log.Hash, "", maxChain)
	if err != nil {
		return stop(err)
	}
	v.writers[log.place.Writer] = true
	checked := log.place.String() + at.Digest.String()
	for _, commit := range commits {
		if already, ok := v.done[checked+string(commit.ID)]; ok {
			at = already
			continue
		}
		files, err := v.objects.readFiles(ctx, commit.Tree, fileLimits{Files: maxRooms, Bytes: maxSegmentFile})
		if err != nil {
			return stop(err)
		}
		segment, err := checkSegment(v.roster, v.repository, log.place, at, files)
		if segment == nil {
			return stop(err)
		}
		h := segment.Header()
		if err != nil && v.roster != nil { // from a newer version, or by a state of the team that is not here
			v.wrong(log.Name, h.Seq, "segment %d: %v", h.Seq, err)
		}
		at = indexTip{Generation: h.Generation, Seq: h.Seq, Digest: segment.Digest, RosterSeq: at.RosterSeq}
		if err == nil {
			at.RosterSeq = h.Roster.Seq
			v.take(log.Name, segment)
		}
		v.report.Segments++
		v.found(log.Name, name, h.Seq, segment.Digest)
		v.done[checked+string(commit.ID)] = at
	}
	return at, nil
}

// found notes a segment, and a fork where another one stands in its place elsewhere.
func (v *verification) found(ref string, name logName, seq uint64, digest Digest) {
	if v.digests[name] == nil {
		v.digests[name] = map[uint64]seenAt{}
	}
	if other, ok := v.digests[name][seq]; !ok {
		v.digests[name][seq] = seenAt{digest, ref}
	} else if other.digest != digest {
		v.wrong(ref, seq, "another segment %d of this log stands in %s: the log was forked", seq, other.ref)
	}
}

// take counts an admitted segment, and looks at what is only seen beside other segments.
func (v *verification) take(ref string, segment *Segment) {
	for _, f := range segment.Files {
		v.report.Entries += int(f.Count)
		if err := v.roster.Withdrawn(segment, f); err != nil {
			v.wrong(ref, f.Seq, "%v", err)
		}
		// age draws anew for each text that it seals, so two equal ones are one, published twice.
		digest := Digest(sha256.Sum256(f.signed.payload))
		here := sealedAt{ref, f.Seq, f.Created, f.Digest}
		switch there, twice := v.sealed[digest]; {
		case !twice:
			v.sealed[digest] = here
		case there.file == f.Digest: // the same file, in another namespace
		case there.created > here.created:
			v.wrong(there.ref, there.seq, "its sealed text is that of segment %d in %s: it was signed again", here.seq, here.ref)
			v.sealed[digest] = here
		default:
			v.wrong(ref, f.Seq, "its sealed text is that of segment %d in %s: it was signed again", there.seq, there.ref)
		}
	}
	for _, tip := range segment.Files[0].Seen {
		if _, ok := v.seen[tip]; !ok {
			v.seen[tip] = fmt.Sprintf("%s, segment %d", ref, segment.Header().Seq)
		}
	}
}

// compareSeen looks for what others had read of a log on a host, and is not there.
func (v *verification) compareSeen() {
	for tip, by := range v.seen {
		v.mustHold(logName{tip.Writer, tip.Kind}, tip.Generation, tip.Seq, tip.Segment, "as the writer of "+by+" saw it")
	}
}

// compareCuts does the same with what the roster says of the logs of those who were shut out.
func (v *verification) compareCuts() {
	if v.roster == nil {
		return
	}
	check := func(c cut) {
		for name, at := range c {
			if at.seq > 0 {
				v.mustHold(name, 0, at.seq, at.digest, "at which the roster cut it when its device was removed")
			}
		}
	}
	for _, d := range v.roster.former {
		check(d.cut)
	}
	for _, room := range v.roster.Rooms {
		for _, s := range room.past {
			check(s.cut)
		}
	}
}

// compareRemembered looks for what this clone had read of others' logs, and how many segments those were, when it last kept its
// index: whoever takes them from host and clone alike cannot change that. Where there is no index that this machine can open
// nothing is remembered; what is wrong with it is of no importance, since it is only a copy.
func (v *verification) compareRemembered() error {
	if v.Home == nil {
		return nil
	}
	device, err := v.Home.Device()
	if errors.Is(err, ErrNoDevice) {
		return nil
	}
	if err != nil {
		return err
	}
	writer, copied, err := readWriter(v.repo.CommonDir, device.ID)
	if err != nil || copied {
		return nil
	}
	head, _, err := readIndex(v.repo.CommonDir, &device.Local, writer)
	if err != nil {
		return nil
	}
	for _, tip := range head.Tips {
		// Of its own log this clone takes back what was not pushed, to seal it again.
		namespace, place, ok := refPlaceOf(tip.Ref)
		if ok && namespace == keptRefs && place.Log != 0 && tip.Seq > 0 {
			v.mustHold(logName{place.Writer, place.Log}, tip.Generation, tip.Seq, tip.Digest, "when this clone last read it")
		}
	}
	return nil
}

// mustHold says what is wrong where a log does not hold a segment that it held once.
func (v *verification) mustHold(name logName, generation, seq uint64, digest Digest, how string) {
	if v.broken[name] || v.roster != nil && v.roster.Retired[name.writer] || name.kind == AuditLog && v.auditNotFetched() {
		return
	}
	held := v.digests[name]
	at, ok := held[seq]
	ref := ownRefs + refPlace{Log: name.kind, Writer: name.writer, Generation: max(generation, 1)}.String()
	switch {
	case ok && at.digest != digest:
		v.wrong(at.ref, seq, "it is another segment than %d %s: the log was rewritten", seq, how)
	case ok:
	case len(held) == 0:
		v.wrong(ref, seq, "this log is gone, which held segment %d %s", seq, how)
	default:
		last := slices.Max(slices.Collect(maps.Keys(held)))
		if last < seq { // else the generation that held it was dropped, as it may be
			v.wrong(held[last].ref, last+1, "this log was cut short: it held segment %d %s", seq, how)
		}
	}
}

// auditNotFetched says that this is a clone that has only memory of its host.
func (v *verification) auditNotFetched() bool {
	inbox := false
	for namespace, logs := range v.logs {
		if !strings.HasPrefix(namespace, inboxRefs) {
			continue
		}
		inbox = true
		if slices.ContainsFunc(logs, func(r placedRef) bool { return r.place.Log == AuditLog }) {
			return false
		}
	}
	return inbox
}

// compareKept looks for what this clone accepted from a host which now shows less.
func (v *verification) compareKept(ctx context.Context) error {
	kept := v.logs[keptRefs]
	for namespace, logs := range v.logs {
		if !strings.HasPrefix(namespace, inboxRefs) {
			continue
		}
		hosted := map[string]Hash{}
		for _, r := range logs {
			hosted[r.place.String()] = r.Hash
		}
		for _, k := range kept {
			tail := k.place.String()
			at, there := hosted[tail]
			if at == k.Hash || k.place.Log == AuditLog && v.auditNotFetched() || !there && hasLater(hosted, k.place) {
				continue
			}
			if !there {
				v.wrong(namespace+tail, 0, "the host has lost this log, which this clone keeps in %s", k.Name)
				continue
			}
			missing, behind, err := v.objects.readChain(ctx, k.Hash, at, maxChain)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err == nil && behind { // what parted, or goes on, was walked already
				last := v.last(logName{k.place.Writer, k.place.Log})
				v.wrong(namespace+tail, last+1-min(uint64(len(missing)), last), "the host shows %d segments less than this clone keeps in %s", len(missing), k.Name)
			}
		}
	}
	return nil
}

func (v *verification) last(name logName) (last uint64) {
	for seq := range v.digests[name] {
		last = max(last, seq)
	}
	return last
}
