package gitlog

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// docs/formats is what others implement. No well-kept CDDL validator exists in Go, so these tests hold the
// grammar's tables of keys to the decoders: which keys there are, and which may be absent.

const (
	grammarFile      = "../docs/formats/knoot.cddl"
	relayGrammarFile = "../docs/formats/relay.cddl"
)

// grammarKeys reads the maps with integer keys: by rule, key to whether it is optional.
func grammarKeys(t *testing.T, file string) map[string]map[uint64]bool {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	start := regexp.MustCompile(`^([a-z-]+) = \{`)
	key := regexp.MustCompile(`^  (\? )?(\d+) => .*; \S`)
	bare := regexp.MustCompile(`^  (\? )?\d+ =>`)
	rules := map[string]map[uint64]bool{}
	var rule string
	for i, line := range strings.Split(string(data), "\n") {
		switch m := key.FindStringSubmatch(line); {
		case start.MatchString(line):
			rule = start.FindStringSubmatch(line)[1]
			rules[rule] = map[uint64]bool{}
		case line == "}":
			rule = ""
		case m != nil && rule != "":
			n, err := strconv.ParseUint(m[2], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			rules[rule][n] = m[1] != ""
		case bare.MatchString(line):
			t.Errorf("line %d: a key without a comment that names it", i+1)
		}
	}
	return rules
}

func TestGrammarKeys(t *testing.T) {
	x := newFixture(t)
	header := x.header()
	header.Version, header.Seq, header.Prev, header.Epoch = 1, 2, Digest{1}, 1
	header.Room, header.Rooms = x.roster.General, []RoomID{x.roster.General}
	header.Seen, header.Checkpoint = []Tip{{WriterID{1}, MemoryLog, 1, 1, Digest{}}}, &Checkpoint{1, 1}

	genesis := captureGenesis(t, x.device)
	read := func(read func(v any) error) func(m intMap) error {
		return func(m intMap) error {
			v, err := decodeStrict(encodeCBOR(m))
			if err != nil {
				return err
			}
			return read(v)
		}
	}
	entry := func(kind EntryKind) func(m intMap) error {
		return func(m intMap) error {
			e, err := decodeEntry(anEntry(kind, m), TeamID{}, RepositoryID{})
			if err != nil {
				return err
			}
			return e.Newer()
		}
	}
	inFact := func(m intMap) error { return entry(KindFact)(with(leanFact, 3, []any{m})) }
	protected := func(read func(data []byte) error) func(m intMap) error {
		return func(m intMap) error { return read(encodeCBOR(m)) }
	}
	sealed := func(m intMap, to *EpochKey) []byte {
		b, err := seal(to.read.Load().Recipient(), encodeCBOR(m))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	epoch := x.roster.Rooms[x.roster.General].Current()
	key := x.ring[epoch.RoomEpoch]
	kid := x.device.ID

	// A team that each operation fits.
	d := draw(t, "A: team -> A: member bob, device bob B, invite bob P, member zoe, member eve, device eve E -> A: room pay bob, area src pay -> A: expel eve")
	applied := func(signer string, number uint64) func(m intMap) error {
		return func(m intMap) error {
			v, err := decodeStrict(encodeCBOR(m))
			if err != nil {
				return err
			}
			id := d.device(signer).ID
			w := &entryWork{e: &rosterEntry{kid: id, seq: d.state.Head.Seq + 1, time: d.clock}, by: d.state.authorOf(id), begin: map[RoomID]bool{}, begun: map[RoomID]bool{}}
			op := operation{number, v.(map[any]any)}
			w.e.operations = append(w.e.operations, op)
			return d.state.clone().applyOperation(w, op)
		}
	}
	bob, zoe, pay, src, joiner, left := d.member("bob"), d.member("zoe"), d.room("pay"), d.area("src"), newDevice(t), d.writer("E")
	joinerKey, joinerRecipient := []byte(joiner.Sign.Public().(ed25519.PublicKey)), joiner.Age.Recipient().String()
	p, b := d.device("P").ID, d.device("B").ID
	general := RoomEpoch{d.state.General, 1}
	requestText := func(m intMap) error {
		q := &JoinRequest{epoch: 1, sealed: sealed(m, d.keys[general])}
		return q.openTexts(d.state.General, d.keys)
	}
	request := func(protected []byte, m intMap) error {
		data, err := sign(joiner.Sign, requestContext, protected, encodeCBOR(m))
		if err != nil {
			t.Fatal(err)
		}
		_, err = parseRequest(data, d.state.Team)
		return err
	}
	fullRequest := intMap{1: uint64(1), 2: d.state.Team[:], 3: joinerKey, 4: joinerRecipient, 5: uint64(1), 6: uint64(1), 7: []byte{1}}

	for rule, c := range map[string]struct {
		full   intMap // with every key that can be there at once
		decode func(m intMap) error
		depend []uint64 // keys that are there or not depending on others: optional in the grammar, needed in full
		alone  []uint64 // keys that exclude others, so that full lacks them
	}{
		"segment-header": {header.encode(), read(func(v any) error { _, err := readHeader(v); return err }), []uint64{13}, nil},
		"segment-protected": {intMap{1: -8, 3: segmentContentType, 4: kid[:]}, protected(func(data []byte) error {
			v, err := decodeStrict(data)
			if err != nil {
				return err
			}
			v.(map[any]any)[labelHeader] = true
			file := &SegmentFile{}
			if _, err := file.readProtected(v); err != nil {
				return err
			}
			return file.Newer
		}), nil, nil},
		"roster-protected": {intMap{1: -8, 4: kid[:]}, protected(func(data []byte) error {
			return extendError(t, x.device, data, genesis.payload)
		}), nil, nil},
		"segment-text": {intMap{1: make([]byte, 32), 2: []any{}}, func(m intMap) error {
			h := header
			h.Seq, h.Prev, h.Rooms = 1, Digest{}, []RoomID{h.Room}
			file := x.forge(t, h, nil, func(f *forgery) { f.payload = sealed(m, key) })
			s, err := ParseSegmentFile(file, true)
			if err != nil {
				return err
			}
			_, err = s.Open(key)
			return err
		}, nil, nil},
		"entry": {intMap{1: uint64(KindPlan), 2: uint64(1), 3: make([]byte, 8), 4: kid[:], 5: intMap{}}, func(m intMap) error {
			e, err := decodeEntry(encodeCBOR(m), TeamID{}, RepositoryID{})
			if err != nil {
				return err
			}
			return e.Newer()
		}, nil, nil},
		"fact":           {confirmation, entry(KindFact), []uint64{6}, []uint64{12}},
		"fact-path":      {fullPath, inFact, nil, []uint64{4}},
		"plan":           {fullPlan, entry(KindPlan), nil, nil},
		"tombstone":      {fullTombstone, entry(KindTombstone), nil, nil},
		"event":          {fullEvent, entry(SessionStarted), nil, nil},
		"event-path":     {intMap{1: []byte("a"), 2: make([]byte, 20)}, func(m intMap) error { return entry(SessionStarted)(intMap{9: []any{m}}) }, nil, nil},
		"roster-payload": {with(genesis.payload, 8, []any{[]any{make([]byte, 8), uint64(2), make([]byte, 32)}}), func(m intMap) error { return payloadError(t, x.device, m) }, nil, []uint64{3}},
		"op-team": {genesis.team, func(m intMap) error {
			return payloadError(t, x.device, with(genesis.payload, 5, []any{[]any{uint64(1), m}}))
		}, nil, nil},
		"op-member":          {intMap{2: id16(0x99)}, applied("A", opMemberAdded), nil, nil},
		"op-member-removed":  {intMap{2: bob[:], 12: []any{}}, applied("A", opMemberRemoved), nil, nil},
		"op-device":          {intMap{2: bob[:], 3: joinerKey, 4: joinerRecipient, 10: true, 11: uint64(maxMillis)}, applied("A", opDeviceAdded), []uint64{11}, nil},
		"op-join":            {intMap{3: joinerKey, 4: joinerRecipient, 9: p[:]}, applied("P", opJoin), nil, nil},
		"op-device-removed":  {intMap{9: b[:], 12: []any{}}, applied("A", opDeviceRemoved), nil, nil},
		"op-room-member":     {intMap{2: zoe[:], 5: pay[:]}, applied("A", opRoomGranted), nil, nil},
		"op-room-revoked":    {intMap{2: bob[:], 5: pay[:], 12: []any{}}, applied("A", opRoomRevoked), nil, nil},
		"op-area":            {intMap{5: pay[:], 13: src[:]}, applied("A", opAreaSet), nil, nil},
		"op-epoch":           {intMap{5: pay[:], 6: uint64(2), 7: joinerRecipient}, applied("A", opEpochBegun), nil, nil},
		"op-repository":      {intMap{8: id16(0x99)}, applied("A", opRepositoryAdded), nil, nil},
		"op-writer":          {intMap{14: left[:]}, applied("A", opLogRetired), nil, nil},
		"op-minimum-version": {intMap{15: uint64(1)}, applied("A", opMinimumVersion), nil, nil},
		"op-device-id":       {intMap{9: p[:]}, applied("A", opInvitationCancelled), nil, nil},
		"request-payload": {fullRequest, func(m intMap) error {
			return request(encodeCBOR(map[any]any{1: algorithmEdDSA, 4: joiner.ID[:]}), m)
		}, nil, nil},
		"request-text": {intMap{1: make([]byte, 32), 2: intMap{}}, requestText, nil, nil},
		"request-who": {intMap{1: "bob", 2: "bob@example.org", 3: "laptop"}, func(m intMap) error {
			return requestText(intMap{1: make([]byte, 32), 2: m})
		}, nil, nil},
		"key-text": {intMap{1: d.state.Team[:], 2: []any{uint64(1), make([]byte, 32)}, 3: make([]byte, 32), 4: joiner.Age.String(), 5: uint64(1)}, func(m intMap) error {
			body := encodeCBOR(m)
			_, err := ParseInvitation(invitationPrefix + base64.RawURLEncoding.EncodeToString(append(body, keyChecksum(invitationPrefix, body)...)))
			return err
		}, nil, nil},
		"roster-names": {intMap{1: make([]byte, 32), 2: map[any]any{}}, func(m intMap) error {
			_, err := (&sealedNames{epoch: epoch.RoomEpoch, bytes: sealed(m, key), names: new(atomic.Pointer[Names])}).open(x.ring)
			return err
		}, nil, nil},
		"name-record": {intMap{1: "Ash", 2: "ash@example.org", 3: "laptop", 4: []byte("src")}, func(m intMap) error {
			_, err := (&sealedNames{epoch: epoch.RoomEpoch, bytes: sealed(intMap{1: make([]byte, 32), 2: map[any]any{RoomID{}: m}}, key), names: new(atomic.Pointer[Names])}).open(x.ring)
			return err
		}, nil, nil},
		"live-header": {intMap{1: uint64(1), 2: make([]byte, 32), 3: make([]byte, 16), 4: make([]byte, 8), 5: uint64(1), 6: make([]byte, 16), 7: uint64(50), 8: uint64(1), 9: uint64(1)},
			func(m intMap) error {
				_, err := ParseLive(forgeLive(t, x.device, m, nil))
				return err
			}, nil, nil},
		"grant-payload": {intMap{1: uint64(1), 2: make([]byte, 32), 3: make([]byte, 16), 4: make([]byte, 16), 5: make([]byte, 16), 6: make([]byte, 16), 7: make([]byte, 16),
			8: make([]byte, 16), 9: make([]byte, 16), 10: uint64(1), 11: uint64(1), 12: uint64(1), 13: uint64(1)}, func(m intMap) error {
			_, err := ReadGrant(forgeGrant(t, x.device.Sign, grantContext, m), publicKey(x.device))
			return err
		}, nil, nil},
		"key-file": {intMap{1: x.roster.nonce[:], 2: epoch.Room[:], 3: uint64(1), 4: key.text}, func(m intMap) error {
			_, err := openKeyFile(sealed(m, key), key.read.Load(), x.roster.nonce, epoch)
			return err
		}, nil, nil},
	} {
		grammar, ok := grammarKeys(t, grammarFile)[rule]
		if !ok {
			grammar, ok = grammarKeys(t, relayGrammarFile)[rule]
		}
		if !ok {
			t.Errorf("%s: not in the grammar", rule)
			continue
		}
		for k := uint64(1); k < 64; k++ {
			// A value that is wrong everywhere: a known key is no newer version for it. Operations know all the keys
			// of other operations and refuse them.
			err := c.decode(with(c.full, k, []any{[]any{}}))
			known := !errors.Is(err, ErrNewer)
			if _, there := grammar[k]; there != known && !(strings.HasPrefix(rule, "op-") && k <= opVersion) {
				t.Errorf("%s, key %d: in the grammar %v, known to the decoder %v (%v)", rule, k, there, known, err)
			}
		}
		for k, optional := range grammar {
			if slices.Contains(c.alone, k) {
				continue
			}
			if _, there := c.full[k]; !there {
				t.Errorf("%s, key %d: this test's example lacks it", rule, k)
			}
			missing := errors.Is(c.decode(without(c.full, k)), errMissing)
			if missing == optional && !(optional && slices.Contains(c.depend, k)) {
				t.Errorf("%s, key %d: optional in the grammar %v, missed by the decoder %v", rule, k, optional, missing)
			}
		}
	}
}

// captureGenesis returns a genesis as it is before it is signed, key 6 included.
func captureGenesis(t *testing.T, device *Device) *rosterForgery {
	t.Helper()
	var made *rosterForgery
	forgeGenesis(t, device, func(f *rosterForgery) { made = f })
	return made
}

func payloadError(t *testing.T, device *Device, payload intMap) error {
	t.Helper()
	return extendError(t, device, encodeCBOR(map[any]any{1: algorithmEdDSA, 4: device.ID[:]}), payload)
}

func extendError(t *testing.T, device *Device, protected []byte, payload intMap) error {
	t.Helper()
	entry, err := sign(device.Sign, rosterContext, protected, encodeCBOR(payload))
	if err != nil {
		t.Fatal(err)
	}
	e, err := parseRosterEntry(entry)
	if err == nil {
		err = e.newer
	}
	if err != nil {
		return err
	}
	fresh, w := newRoster(), &entryWork{e: e, begin: map[RoomID]bool{}, begun: map[RoomID]bool{}}
	for _, op := range e.operations {
		if err := fresh.applyOperation(w, op); err != nil {
			return err
		}
	}
	return nil
}

// The numbers of entry kinds in the grammar are the constants' names and values, all of them.
func TestGrammarKinds(t *testing.T) {
	data, err := os.ReadFile(grammarFile)
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(data), "entry-kind = &(")
	text, _, _ = strings.Cut(text, ")")
	grammar := map[string]uint64{}
	for _, m := range regexp.MustCompile(`(\w+): (\d+)`).FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseUint(m[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		grammar[m[1]] = n
	}
	code := constantsOf(t, "entry.go", "EntryKind")
	for name, value := range code {
		name = strings.TrimPrefix(name, "Kind")
		if value < uint64(SessionStarted) {
			name = strings.ToLower(name)
		}
		if grammar[name] != value {
			t.Errorf("%s is %d in the code, %d in the grammar", name, value, grammar[name])
		}
	}
	if len(grammar) != len(code) {
		t.Errorf("%d kinds in the grammar, %d in the code", len(grammar), len(code))
	}
}

// constantsOf returns the constants of a type that a file declares.
func constantsOf(t *testing.T, file, typeName string) map[string]uint64 {
	t.Helper()
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	conf := types.Config{Importer: importer.Default(), Error: func(error) {}} // other files' names are missing
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}}
	_, _ = conf.Check("gitlog", fset, []*ast.File{parsed}, info)
	values := map[string]uint64{}
	for ident, object := range info.Defs {
		c, ok := object.(*types.Const)
		if !ok || !strings.HasSuffix(c.Type().String(), "."+typeName) {
			continue
		}
		n, exact := constant.Uint64Val(c.Val())
		if !exact {
			t.Fatalf("%s has no value", ident.Name)
		}
		values[ident.Name] = n
	}
	return values
}
