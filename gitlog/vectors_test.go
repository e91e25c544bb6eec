package gitlog

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"filippo.io/age"
)

// The vectors in docs/formats/vectors are for whoever reads or writes these formats without this package. The tests
// here hold this package to them; vectors_make_test.go makes them, with
//
//	go test ./gitlog -run TestMakeVectors -update
//
// Files that were published stay: new vectors are added, old ones are never made again with other bytes.
var update = flag.Bool("update", false, "write the vectors in docs/formats/vectors anew")

const vectorFolder = "../docs/formats/vectors"

// faults are the names that vectors give to failures.
var faults = map[string]error{
	"newer":             ErrNewer,
	"syntax":            errSyntax,
	"not-deterministic": errNotDeterministic,
	"duplicate-key":     errDuplicateKey,
	"indefinite-length": errIndefinite,
	"null":              errNull,
	"tag":               errTag,
	"depth":             errDepth,
	"utf-8":             errUTF8,
	"trailing":          errTrailing,
	"too-large":         errTooLarge,
	"missing":           errMissing,
	"type":              errType,
	"value":             errValue,
	"unsorted":          errUnsorted,
	"signature":         errSignature,
	"key-id":            errKeyID,
	"recipient":         errRecipient,
	"stanza":            errStanza,
	"identity":          errIdentity,
	"padding":           errPadding,
	"rooms":             errRooms,
	"seen":              errSeen,
	"fields":            errFields,
	"moved":             errMoved,
	"count":             errCount,
	"author":            errAuthor,
	"epoch":             errEpoch,
	"chain":             errChain,
	"signer":            errSigner,
	"files":             errFiles,
	"no-key-file":       errNoKeyFile,
	"no-epoch":          errNoEpoch,
	"no-admin":          errNoAdmin,
	"request":           errRequest,
	"state":             errState,
	"roster-behind":     ErrRosterBehind,
	"not-admitted":      errNotAdmitted,
	"seal":              errLiveSeal,
}

// hexBytes is a list of hex strings and runs {"byte": "00", "times": 65536} to be joined, or just one hex string.
type hexBytes []byte

type hexRun struct {
	Byte  string `json:"byte"`
	Times int    `json:"times"`
}

const shortestRun = 1_000

func (b hexBytes) MarshalJSON() ([]byte, error) {
	var parts []any
	start := 0
	for i := 0; i < len(b); {
		n := 1
		for i+n < len(b) && b[i+n] == b[i] {
			n++
		}
		if n >= shortestRun {
			if start < i {
				parts = append(parts, hex.EncodeToString(b[start:i]))
			}
			parts = append(parts, hexRun{hex.EncodeToString(b[i : i+1]), n})
			start = i + n
		}
		i += n
	}
	if len(parts) == 0 {
		return json.Marshal(hex.EncodeToString(b))
	}
	if start < len(b) {
		parts = append(parts, hex.EncodeToString(b[start:]))
	}
	return json.Marshal(parts)
}

func (b *hexBytes) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err == nil {
		raw, err := hex.DecodeString(text)
		*b = raw
		return err
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	for _, part := range parts {
		var run hexRun
		if json.Unmarshal(part, &run) == nil {
			one, err := hex.DecodeString(run.Byte)
			if err != nil {
				return err
			}
			*b = append(*b, bytes.Repeat(one, run.Times)...)
			continue
		}
		var more hexBytes
		if err := more.UnmarshalJSON(part); err != nil {
			return err
		}
		*b = append(*b, more...)
	}
	return nil
}

type cborVector struct {
	Name  string   `json:"name"`
	CBOR  hexBytes `json:"cbor"`
	Error string   `json:"error,omitempty"`
}

type pathVector struct {
	Name      string   `json:"name"`
	Path      hexBytes `json:"path"`
	Canonical hexBytes `json:"canonical,omitempty"`
	Folded    hexBytes `json:"folded,omitempty"`
	Error     string   `json:"error,omitempty"`
}

type entryVectors struct {
	Team       hexBytes      `json:"team"`
	Repository hexBytes      `json:"repository"`
	Vectors    []entryVector `json:"vectors"`
}

type entryVector struct {
	Name  string   `json:"name"`
	Entry hexBytes `json:"entry"`
	ID    hexBytes `json:"id,omitempty"`
	Newer bool     `json:"newer,omitempty"`
	Error string   `json:"error,omitempty"`
}

type segmentVector struct {
	Name  string              `json:"name"`
	First bool                `json:"first"`
	Files map[string]hexBytes `json:"files"`
	Key   hexBytes            `json:"key"` // the device's, to verify with
	Open  []epochVector       `json:"open,omitempty"`

	Digest  hexBytes            `json:"digest,omitempty"`
	Entries map[string][]string `json:"entries,omitempty"` // ids by room
	Newer   bool                `json:"newer,omitempty"`
	Step    string              `json:"step,omitempty"` // parse, verify or open: where the error comes
	Error   string              `json:"error,omitempty"`
}

type epochVector struct {
	Room     hexBytes `json:"room"`
	Epoch    uint64   `json:"epoch"`
	Identity string   `json:"identity"`
}

type rosterVector struct {
	Name     string         `json:"name"`
	Team     hexBytes       `json:"team"`
	Chain    []commitVector `json:"chain"`
	Device   hexBytes       `json:"device"`
	Identity string         `json:"identity"` // the device's

	Head   uint64            `json:"head"`
	Epochs []epochVector     `json:"epochs,omitempty"`
	Names  map[string]string `json:"names,omitempty"` // of members, by id
	Newer  bool              `json:"newer,omitempty"`
	Step   string            `json:"step,omitempty"` // chain, keys or names: where the error comes
	Error  string            `json:"error,omitempty"`
}

type commitVector struct {
	Entry hexBytes            `json:"entry"`
	Files map[string]hexBytes `json:"files,omitempty"`
}

type keyVector struct {
	Name       string            `json:"name"`
	Team       hexBytes          `json:"team"`
	Repository hexBytes          `json:"repository"`
	Device     hexBytes          `json:"device"`
	Open       epochVector       `json:"epoch"`
	TokenKey   hexBytes          `json:"token_key"`
	LiveKey    hexBytes          `json:"live_key"`
	Path       map[string]string `json:"path"`   // tokens, by path
	Branch     map[string]string `json:"branch"` // by ref
	GitDir     string            `json:"git_dir"`
	Worktree   string            `json:"worktree"`
	Detached   string            `json:"detached"`
	Agent      string            `json:"agent"`
	Session    string            `json:"session"`
	Token      string            `json:"session_token"`
}

type requestVector struct {
	Name    string            `json:"name"`
	Team    hexBytes          `json:"team"`
	Open    []epochVector     `json:"open"` // general's epochs
	Request hexBytes          `json:"request"`
	Device  hexBytes          `json:"device,omitempty"`
	Time    uint64            `json:"time,omitempty"`
	Who     map[string]string `json:"who,omitempty"`
	Words   string            `json:"fingerprint,omitempty"`
	Step    string            `json:"step,omitempty"` // parse or open: where the error comes
	Error   string            `json:"error,omitempty"`
}

type liveVector struct {
	Name string      `json:"name"`
	Live hexBytes    `json:"live"`
	Key  hexBytes    `json:"key"`   // the device's, to verify with
	Open epochVector `json:"epoch"` // to open with

	Header *liveHeaderVector `json:"header,omitempty"`
	Text   hexBytes          `json:"text,omitempty"`
	Step   string            `json:"step,omitempty"` // parse or open: where the error comes
	Error  string            `json:"error,omitempty"`
}

type liveHeaderVector struct {
	Device     hexBytes `json:"device"`
	Team       hexBytes `json:"team"`
	Repository hexBytes `json:"repository"`
	Session    hexBytes `json:"session"`
	Kind       uint64   `json:"kind"`
	Counter    uint64   `json:"counter"`
	Time       uint64   `json:"time"`
}

type grantVector struct {
	Name  string            `json:"name"`
	Grant hexBytes          `json:"grant"`
	Relay hexBytes          `json:"relay"`           // its key
	Means map[string]string `json:"means,omitempty"` // tokens and ids in hex, numbers in decimal
	Error string            `json:"error,omitempty"`
}

func readVectors[T any](t testing.TB, file string) T {
	t.Helper()
	var v T
	data, err := os.ReadFile(filepath.Join(vectorFolder, file))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return v
}

// checkFault compares an error with the name that a vector gives; "" is none.
func checkFault(t *testing.T, err error, name string) {
	t.Helper()
	switch want := faults[name]; {
	case name != "" && want == nil:
		t.Errorf("the vector names an unknown failure %q", name)
	case !errors.Is(err, want):
		t.Errorf("%v, want %q (%v)", err, name, want)
	}
}

func TestCBORVectors(t *testing.T) {
	for _, v := range readVectors[[]cborVector](t, "cbor.json") {
		t.Run(v.Name, func(t *testing.T) {
			_, err := decodeStrict(v.CBOR)
			checkFault(t, err, v.Error)
		})
	}
}

func TestPathVectors(t *testing.T) {
	for _, v := range readVectors[[]pathVector](t, "path.json") {
		t.Run(v.Name, func(t *testing.T) {
			got, err := CanonicalPath(string(v.Path))
			checkFault(t, err, v.Error)
			if err == nil && (got != string(v.Canonical) || FoldPath(got) != string(v.Folded)) {
				t.Errorf("%q, folded %q, want %q and %q", got, FoldPath(got), v.Canonical, v.Folded)
			}
		})
	}
}

func TestEntryVectors(t *testing.T) {
	file := readVectors[entryVectors](t, "entry.json")
	team, repository := TeamID(file.Team), RepositoryID(file.Repository)
	for _, v := range file.Vectors {
		t.Run(v.Name, func(t *testing.T) {
			e, err := decodeEntry(v.Entry, team, repository)
			checkFault(t, err, v.Error)
			if err != nil {
				return
			}
			if id := e.ID(); !bytes.Equal(id[:], v.ID) {
				t.Errorf("id %s, want %x", id, v.ID)
			}
			if errors.Is(e.Newer(), ErrNewer) != v.Newer {
				t.Errorf("newer: %v, want %v", e.Newer(), v.Newer)
			}
			if e.Newer() != nil && (e.Fact != nil || e.Plan != nil || e.Tombstone != nil || e.Event != nil) {
				t.Error("an entry that cannot be read has a body")
			}
		})
	}
}

func (v *epochVector) key(t testing.TB) *EpochKey {
	t.Helper()
	identity, err := age.ParseHybridIdentity(v.Identity)
	if err != nil {
		t.Fatal(err)
	}
	return newEpochKey(RoomEpoch{RoomID(v.Room), v.Epoch}, identity)
}

func TestSegmentVectors(t *testing.T) {
	for _, v := range readVectors[[]segmentVector](t, "segment.json") {
		t.Run(v.Name, func(t *testing.T) {
			step, err := v.run(t)
			checkFault(t, err, v.Error)
			if v.Error != "" && step != v.Step {
				t.Errorf("failed at %q, want %q", step, v.Step)
			}
		})
	}
}

// run takes the steps of a reader and returns the one that failed.
func (v *segmentVector) run(t *testing.T) (step string, err error) {
	files := map[RoomID][]byte{}
	for name, data := range v.Files {
		room, err := ParseRoomID(name)
		if err != nil {
			t.Fatal(err)
		}
		files[room] = data
	}
	s, err := ParseSegment(files, v.First)
	if err != nil {
		return "parse", err
	}
	if v.Digest != nil && !bytes.Equal(s.Digest[:], v.Digest) {
		t.Errorf("digest %s, want %x", s.Digest, v.Digest)
	}
	if err := s.Verify(ed25519.PublicKey(v.Key)); err != nil {
		return "verify", err
	}
	if errors.Is(s.Newer(), ErrNewer) != v.Newer {
		t.Errorf("newer: %v, want %v", s.Newer(), v.Newer)
	}
	for _, o := range v.Open {
		key := o.key(t)
		entries, err := s.File(key.Room).Open(key)
		if err != nil {
			return "open", err
		}
		var ids []string
		for _, e := range entries {
			ids = append(ids, e.ID().String())
		}
		if got, want := fmt.Sprint(ids), fmt.Sprint(v.Entries[key.Room.String()]); got != want {
			t.Errorf("room %s: entries %s, want %s", key.Room, got, want)
		}
	}
	return "", nil
}

func TestRosterVectors(t *testing.T) {
	for _, v := range readVectors[[]rosterVector](t, "roster.json") {
		t.Run(v.Name, func(t *testing.T) {
			step, err := v.run(t)
			checkFault(t, err, v.Error)
			if v.Error != "" && step != v.Step {
				t.Errorf("failed at %q, want %q", step, v.Step)
			}
		})
	}
}

func (v *rosterVector) run(t *testing.T) (step string, err error) {
	identity, err := age.ParseHybridIdentity(v.Identity)
	if err != nil {
		t.Fatal(err)
	}
	device := &Device{ID: DeviceID(v.Device), Age: identity}
	var chain []RosterCommit
	for _, c := range v.Chain {
		files := map[string][]byte{}
		for name, data := range c.Files {
			files[name] = data
		}
		chain = append(chain, RosterCommit{c.Entry, files})
	}
	r, err := VerifyRoster(TeamID(v.Team), chain)
	if r != nil && r.Head.Seq != v.Head {
		t.Errorf("head %d, want %d", r.Head.Seq, v.Head)
	}
	if err != nil {
		return "chain", err
	}
	if errors.Is(r.Newer, ErrNewer) != v.Newer || errors.Is(r.Sealable(), ErrNewer) != v.Newer {
		t.Errorf("newer: %v, want %v", r.Newer, v.Newer)
	}
	ring, err := r.OpenEpochs(device)
	if err != nil {
		return "keys", err
	}
	if len(ring) != len(v.Epochs) {
		t.Errorf("%d epochs opened, want %d", len(ring), len(v.Epochs))
	}
	for _, e := range v.Epochs {
		if key := ring[RoomEpoch{RoomID(e.Room), e.Epoch}]; key == nil || key.text != e.Identity {
			t.Errorf("room %x, epoch %d: not the identity that the vector has", e.Room, e.Epoch)
		}
	}
	if err := r.ReadNames(ring); err != nil {
		return "names", err
	}
	for id, m := range r.Members {
		if m.Name != v.Names[id.String()] {
			t.Errorf("member %s: %q, want %q", id, m.Name, v.Names[id.String()])
		}
	}
	return "", nil
}

func TestKeyVectors(t *testing.T) {
	for _, v := range readVectors[[]keyVector](t, "keys.json") {
		t.Run(v.Name, func(t *testing.T) {
			key := v.Open.key(t)
			repository, device := RepositoryID(v.Repository), DeviceID(v.Device)
			token, err := key.TokenKey(TeamID(v.Team))
			if err != nil || !bytes.Equal(token[:], v.TokenKey) {
				t.Errorf("token key %x (%v), want %x", token, err, v.TokenKey)
			}
			live, err := key.LiveKey(TeamID(v.Team))
			if err != nil || !bytes.Equal(live[:], v.LiveKey) {
				t.Errorf("live key %x (%v), want %x", live, err, v.LiveKey)
			}
			same := func(what string, got Token, want string) {
				if hex.EncodeToString(got[:]) != want {
					t.Errorf("%s: %x, want %s", what, got, want)
				}
			}
			for path, want := range v.Path {
				same("path "+path, token.Path(repository, path), want)
			}
			for ref, want := range v.Branch {
				same("branch "+ref, token.Branch(repository, ref), want)
			}
			same("worktree", token.Worktree(repository, device, v.GitDir), v.Worktree)
			same("detached", token.Detached(repository, device, v.GitDir), v.Detached)
			same("session", token.Session(repository, device, v.Agent, v.Session), v.Token)
		})
	}
}

func TestRequestVectors(t *testing.T) {
	for _, v := range readVectors[[]requestVector](t, "request.json") {
		t.Run(v.Name, func(t *testing.T) {
			step, err := v.run(t)
			checkFault(t, err, v.Error)
			if v.Error != "" && step != v.Step {
				t.Errorf("failed at %q, want %q", step, v.Step)
			}
		})
	}
}

func (v *requestVector) run(t *testing.T) (step string, err error) {
	q, err := parseRequest(v.Request, TeamID(v.Team))
	if err != nil {
		return "parse", err
	}
	ring := Keyring{}
	for i := range v.Open {
		key := v.Open[i].key(t)
		ring[key.RoomEpoch] = key
	}
	if err := q.openTexts(RoomID(v.Open[0].Room), ring); err != nil {
		return "open", err
	}
	if !bytes.Equal(q.Device[:], v.Device) || uint64(q.Time) != v.Time || q.Name != v.Who["name"] || q.Address != v.Who["address"] || q.Label != v.Who["label"] {
		t.Errorf("%+v, want %x, %d, %v", q, v.Device, v.Time, v.Who)
	}
	if got := q.Fingerprint(); got != v.Words {
		t.Errorf("fingerprint %s, want %s", got, v.Words)
	}
	return "", nil
}

func TestLiveVectors(t *testing.T) {
	for _, v := range readVectors[[]liveVector](t, "live.json") {
		t.Run(v.Name, func(t *testing.T) {
			step, err := v.run(t)
			checkFault(t, err, v.Error)
			if v.Error != "" && step != v.Step {
				t.Errorf("failed at %q, want %q", step, v.Step)
			}
		})
	}
}

func (v *liveVector) run(t *testing.T) (step string, err error) {
	l, err := ParseLive(v.Live)
	if err != nil {
		return "parse", err
	}
	if v.Header != nil {
		want := LiveHeader{Device: DeviceID(v.Header.Device), Team: TeamID(v.Header.Team), Repository: RepositoryID(v.Header.Repository),
			RoomEpoch: RoomEpoch{RoomID(v.Open.Room), v.Open.Epoch}, Session: Token(v.Header.Session), Kind: EntryKind(v.Header.Kind),
			Counter: v.Header.Counter, Time: Millis(v.Header.Time)}
		if l.LiveHeader != want {
			t.Errorf("the header is %+v, want %+v", l.LiveHeader, want)
		}
	}
	text, err := l.Open(ed25519.PublicKey(v.Key), v.Open.key(t))
	if err != nil {
		return "open", err
	}
	if !bytes.Equal(text, v.Text) {
		t.Errorf("opens to %x, want %x", text, v.Text)
	}
	return "", nil
}

func TestGrantVectors(t *testing.T) {
	for _, v := range readVectors[[]grantVector](t, "grant.json") {
		t.Run(v.Name, func(t *testing.T) {
			g, err := ReadGrant(v.Grant, ed25519.PublicKey(v.Relay))
			checkFault(t, err, v.Error)
			if err == nil && fmt.Sprint(meansOf(g)) != fmt.Sprint(v.Means) {
				t.Errorf("it means %v, want %v", meansOf(g), v.Means)
			}
		})
	}
}

func meansOf(g *Grant) map[string]string {
	return map[string]string{"team": g.Team.String(), "repository": g.Repository.String(), "claim": hex.EncodeToString(g.Claim[:]), "device": g.Device.String(),
		"session": hex.EncodeToString(g.Session[:]), "path": hex.EncodeToString(g.Path[:]), "branch": hex.EncodeToString(g.Branch[:]),
		"worktree": hex.EncodeToString(g.Worktree[:]), "class": fmt.Sprint(g.Class), "term": fmt.Sprint(g.Term), "seq": fmt.Sprint(g.Seq), "until": fmt.Sprint(uint64(g.Until))}
}
