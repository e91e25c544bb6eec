package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The vectors in docs/formats/vectors/relay.json are for whoever speaks to a relay without this package. The tests here
// hold this package to them. With -update those of makeVectors that are not in the file are added; those that are there
// are never changed. Their bytes come from another encoder.
var update = flag.Bool("update", false, "add what is missing in docs/formats/vectors/relay.json")

const (
	vectorFile  = "../../docs/formats/vectors/relay.json"
	grammarFile = "../../docs/formats/relay.cddl"
)

var faults = map[string]error{
	"syntax": errSyntax, "not-deterministic": errNotDeterministic, "depth": errDepth, "utf-8": errUTF8, "trailing": errTrailing,
	"too-large": errTooLarge, "missing": errMissing, "type": errType, "value": errValue, "unknown": ErrUnknown,
}

type vector struct {
	Name     string `json:"name"`
	Message  string `json:"message,omitempty"`
	Snapshot string `json:"snapshot,omitempty"`
	Rule     string `json:"rule,omitempty"`  // of the grammar
	Later    bool   `json:"later,omitempty"` // holds what only a later version means: it is read, and does not come back
	Error    string `json:"error,omitempty"`
}

type m = map[uint64]any

func repeat(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }

// examples are the rules of the grammar with every key that can be there, by rule; in says where a rule stands in a
// message.
type example struct {
	full m
	in   func(body m) any
}

func alone(kind uint64) func(m) any { return func(body m) any { return []any{kind, body} } }

func grammarExamples() map[string]example {
	id := func(b byte) []byte { return repeat(b, 16) }
	head := []any{3, repeat(9, 32)}
	order := []any{1_700_000_000, 5}
	path := []any{id(20), append(id(21), id(22)...), id(23), id(24)}
	who := m{1: id(1), 2: []byte("sub"), 3: id(2), 4: id(3), 5: true, 6: id(4), 7: id(5), 8: id(6), 9: id(7)}
	want := m{1: id(8), 2: []any{0, 1, 2}, 3: 2, 4: true, 5: true, 6: []byte("sealed"), 7: []any{3}}
	table := bytes.Join([][]byte{id(10), id(11), id(12), id(13)}, nil)
	event := m{1: 35, 2: order, 3: 1_700_000_000_000, 4: who, 5: true, 6: id(14), 7: []any{path}, 8: 1, 9: id(15), 10: 600_000, 11: 6, 12: id(16), 13: []byte("sealed")}
	claim := m{1: id(17), 2: head, 3: who, 4: table, 5: []any{want}, 6: true, 7: true, 8: []byte("sealed"), 9: []any{[]byte("grant")}}
	act := m{1: 2, 2: who, 3: table, 4: []any{want}, 5: id(18), 6: 7, 7: 50, 8: true, 9: []byte("sealed"), 10: id(25)}
	block := m{1: id(8), 2: who, 3: 60_000, 4: 3, 5: 2, 6: []byte("sealed")}
	answer := m{1: 1_700_000_000_000, 2: order, 3: 2, 4: []any{block}, 5: id(8)}
	appended := m{1: id(17), 2: head, 3: []any{act}}
	wait := m{1: who, 2: path, 3: 3, 4: 1, 5: 1, 6: order, 7: true}
	session := m{1: who, 2: 1, 3: 2, 4: []byte("a"), 5: []byte("b"), 6: []byte("c"), 7: 3, 8: 4, 9: true}
	hold := m{1: who, 2: id(8), 3: path, 4: 1, 5: 5, 6: 10, 7: 6, 8: order, 9: []byte("sealed")}
	written := m{1: who, 2: path, 3: order, 4: 1, 5: true, 6: true, 7: []byte("sealed"), 8: 1}
	left := m{1: who, 2: path, 3: id(8), 4: 1, 5: []byte("sealed")}
	queue := m{1: id(20), 2: id(4), 3: 5, 4: []any{wait}}
	snapshot := m{1: order, 2: 1_700_000_000_000, 3: []any{session}, 4: []any{hold}, 5: []any{written}, 6: []any{left}, 7: []any{wait}, 8: []any{queue}}
	inside := func(outer m, key uint64, wrap func(m) any) func(m) any {
		return func(body m) any { return wrap(changed(outer, key, []any{body})) }
	}
	bare := func(body m) any { return body }
	return map[string]example{
		"hello":         {m{1: 1, 2: "knoot 0.1.0"}, alone(1)},
		"welcome":       {m{1: 1, 2: "knoot 0.1.0", 3: repeat(8, 32), 4: 1_700_000_000_000}, alone(2)},
		"open":          {m{1: repeat(7, 32), 2: id(17), 3: head, 4: order, 5: "operator's"}, alone(3)},
		"roster-wanted": {m{1: 0}, alone(4)},
		"roster-part":   {m{1: []any{[]any{0, 300_00, 0, []byte("piece")}}, 2: true}, alone(5)},
		"opened":        {m{1: order, 2: head, 3: 1_700_000_000_000, 4: 70_000, 5: 600_000}, alone(6)},
		"events":        {m{1: 1_700_000_000_000, 2: []any{event}}, alone(7)},
		"event":         {event, inside(m{1: 1}, 2, alone(7))},
		"who":           {who, func(body m) any { return alone(7)(m{1: 1, 2: []any{changed(event, 4, body)}}) }},
		"snapshot-part": {m{1: []byte("part")}, alone(8)},
		"grant-issued":  {m{1: id(8), 2: []byte("grant")}, alone(9)},
		"farewell":      {m{1: 1_000}, alone(10)},
		"claim":         {claim, alone(11)},
		"want":          {want, inside(claim, 5, alone(11))},
		"release":       {m{1: id(17), 2: who, 3: id(8), 4: 7}, alone(12)},
		"append":        {appended, alone(13)},
		"act":           {act, inside(appended, 3, alone(13))},
		"answer":        {answer, alone(14)},
		"block":         {block, inside(answer, 4, alone(14))},
		"roster":        {m{1: id(17), 2: head}, alone(15)},
		"ping":          {m{}, alone(16)},
		"pong":          {m{1: 1_700_000_000_000}, alone(17)},
		"fault":         {m{1: 9, 2: "the tokens go by another roster", 3: 100, 4: head}, alone(18)},
		"snapshot":      {snapshot, bare},
		"session-state": {session, inside(snapshot, 3, bare)},
		"claim-state":   {hold, inside(snapshot, 4, bare)},
		"write-state":   {written, inside(snapshot, 5, bare)},
		"left-state":    {left, inside(snapshot, 6, bare)},
		"wait-state":    {wait, inside(snapshot, 7, bare)},
		"queue-state":   {queue, inside(snapshot, 8, bare)},
	}
}

func changed(body m, key uint64, value any) m {
	c := m{}
	for k, v := range body {
		c[k] = v
	}
	c[key] = value
	return c
}

func lacking(body m, key uint64) m {
	c := changed(body, key, nil)
	delete(c, key)
	return c
}

// check decodes what a rule's example became.
func check(rule string, data []byte) error {
	if rule == "snapshot" || strings.HasSuffix(rule, "-state") {
		_, err := DecodeSnapshot(data)
		return err
	}
	_, err := Decode(data)
	return err
}

// grammarKeys reads the grammar's maps of the wire: by rule, key to whether it is optional. Those of signed objects are
// gitlog's to check.
func grammarKeys(t *testing.T) map[string]map[uint64]bool {
	t.Helper()
	data, err := os.ReadFile(grammarFile)
	if err != nil {
		t.Fatal(err)
	}
	start := regexp.MustCompile(`^([a-z-]+) = \{`)
	key := regexp.MustCompile(`^  (\? )?(\d+) => .*; \S`)
	text, _, _ := strings.Cut(string(data), "; ---- signed objects")
	rules := map[string]map[uint64]bool{}
	rule := ""
	for i, line := range strings.Split(text, "\n") {
		switch found := key.FindStringSubmatch(line); {
		case start.MatchString(line):
			rule = start.FindStringSubmatch(line)[1]
			rules[rule] = map[uint64]bool{}
		case line == "}":
			rule = ""
		case found != nil && rule != "":
			n, err := strconv.ParseUint(found[2], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			rules[rule][n] = found[1] != ""
		case regexp.MustCompile(`^  (\? )?\d+ =>`).MatchString(line):
			t.Errorf("line %d: a key without a comment that names it", i+1)
		}
	}
	return rules
}

// The grammar's keys are the decoders', and as optional.
func TestGrammar(t *testing.T) {
	t.Parallel()
	grammar, examples := grammarKeys(t), grammarExamples()
	for rule := range grammar {
		if _, ok := examples[rule]; !ok {
			t.Errorf("%s: in the grammar, without an example here", rule)
		}
	}
	for rule, x := range examples {
		optional, ok := grammar[rule]
		if !ok {
			t.Errorf("%s: not in the grammar", rule)
			continue
		}
		data := libraryEncode(t, x.in(x.full))
		if err := check(rule, data); err != nil {
			t.Errorf("%s, with every key: %v", rule, err)
		}
		for k := uint64(1); k < 40; k++ {
			// A value that is wrong everywhere: only a decoder that knows the key minds.
			err := check(rule, libraryEncode(t, x.in(changed(x.full, k, []any{[]any{m{1: false}}}))))
			if _, there := optional[k]; there != (err != nil) {
				t.Errorf("%s, key %d: in the grammar %v, known to the decoder %v (%v)", rule, k, there, err != nil, err)
			}
		}
		for k, optional := range optional {
			if _, there := x.full[k]; !there {
				t.Errorf("%s, key %d: the example lacks it", rule, k)
			}
			err := check(rule, libraryEncode(t, x.in(lacking(x.full, k))))
			// A table that is not there has none of the tokens that the paths name, which is found out first.
			if missing := errors.Is(err, errMissing); missing == optional && !(rule == "act" && k == 3 || rule == "claim" && k == 4) {
				t.Errorf("%s, key %d: optional in the grammar %v, missed by the decoder %v (%v)", rule, k, optional, missing, err)
			}
		}
	}
	data, err := os.ReadFile(grammarFile)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	_, codes, _ := strings.Cut(text, "fault-code = &(")
	codes, _, _ = strings.Cut(codes, ")")
	for _, c := range Codes() {
		name := strings.ReplaceAll(strings.ReplaceAll(c.String(), "'s token wanted", " token"), " ", "-")
		if !strings.Contains(codes, name+": "+strconv.Itoa(int(c))+",") {
			t.Errorf("the grammar lacks the code %s: %d", name, c)
		}
	}
	for kind := range decoders {
		if !strings.Contains(text, "["+strconv.FormatUint(kind, 10)+", ") {
			t.Errorf("the grammar lacks message %d", kind)
		}
	}
}

func makeVectors(t *testing.T) []vector {
	var vectors []vector
	add := func(v vector, data []byte) {
		if strings.HasPrefix(v.Rule, "snapshot") && v.Rule != "snapshot-part" || strings.HasSuffix(v.Rule, "-state") {
			v.Snapshot = hex.EncodeToString(data)
		} else {
			v.Message = hex.EncodeToString(data)
		}
		vectors = append(vectors, v)
	}
	examples := grammarExamples()
	for _, rule := range slices.Sorted(mapKeys(examples)) {
		x := examples[rule]
		add(vector{Name: rule + " with every key", Rule: rule}, libraryEncode(t, x.in(x.full)))
		add(vector{Name: rule + " with a key of later", Rule: rule, Later: true},
			libraryEncode(t, x.in(changed(x.full, 30, []any{m{1: "x", 2: []any{-1, true, []byte{1}}}}))))
		for _, key := range slices.Sorted(mapKeys(grammarKeys(t)[rule])) {
			if !grammarKeys(t)[rule][key] {
				fault := "missing"
				if rule == "claim" && key == 4 { // the table of tokens, which the paths index
					fault = "value"
				}
				add(vector{Name: rule + " without key " + strconv.FormatUint(key, 10), Rule: rule, Error: fault},
					libraryEncode(t, x.in(lacking(x.full, key))))
			}
		}
	}
	claim, event := examples["claim"], examples["event"]
	for name, c := range map[string]struct {
		rule  string
		body  m
		fault string
	}{
		"claim for no path":                            {"claim", changed(claim.full, 5, []any{}), "value"},
		"claim for more than 500 paths":                {"claim", changed(claim.full, 5, slices.Repeat([]any{m{2: []any{0}}}, 501)), "too-large"},
		"claim with a token that is not in the table":  {"want", m{2: []any{4}}, "value"},
		"claim with a path of no token":                {"want", m{2: []any{}}, "type"},
		"claim with half a token":                      {"claim", changed(claim.full, 4, repeat(1, 24)), "type"},
		"claim for a hub as a class":                   {"want", m{2: []any{0}, 3: 3}, "value"},
		"who with a session of zeros":                  {"who", m{1: repeat(0, 16)}, "value"},
		"who with a session of 15 bytes":               {"who", m{1: repeat(1, 15)}, "type"},
		"who that is a person: false":                  {"who", m{5: false}, "type"},
		"event that ends before 1970":                  {"event", changed(event.full, 10, -1_700_000_000_000), "value"},
		"event with an empty detail":                   {"event", changed(event.full, 13, []byte{}), "type"},
		"event with a detail that is too large":        {"event", changed(event.full, 13, repeat(1, MaxDetail+1)), "too-large"},
		"event with a path of one token":               {"event", changed(event.full, 7, []any{[]any{repeat(1, 16)}}), "type"},
		"hello in version 0":                           {"hello", m{1: 0}, "value"},
		"hello with text that is not UTF-8":            {"hello", m{1: 1, 2: string([]byte{0xff})}, "utf-8"},
		"release with a reason of later":               {"release", changed(examples["release"].full, 4, 11), "value"},
		"write told late, at which another session is": {"act", examples["act"].full, ""},
		"write that crosses a session of zeros":        {"act", changed(examples["act"].full, 10, repeat(0, 16)), "value"},
		"end for another reason":                       {"act", m{1: 7, 2: m{1: repeat(1, 16)}, 6: 1}, "value"},
		"a piece that does not fit its entry":          {"roster-part", m{1: []any{[]any{0, 4, 0, []byte("piece")}}}, "value"},
		"a piece of an entry that is too large":        {"roster-part", m{1: []any{[]any{0, MaxRosterEntry + 1, 0, []byte("piece")}}}, "value"},
		"pong after the year 9999":                     {"pong", m{1: uint64(maxMillis + 1)}, "value"},
		"pong with time as text":                       {"pong", m{1: "now"}, "type"},
		"fault without a code":                         {"fault", m{1: 0}, "value"},
		"snapshot whose list of sessions is no list":   {"snapshot", changed(examples["snapshot"].full, 3, m{}), "type"},
		"a key of later that is nested too deeply":     {"pong", m{1: 1, 9: []any{[]any{[]any{[]any{[]any{[]any{[]any{[]any{1}}}}}}}}}, "depth"},
		"a key of later that holds a float":            {"pong", m{1: 1, 9: 1.5}, "syntax"},
		"a key of later that holds null":               {"pong", m{1: 1, 9: nil}, "syntax"},
		"a key of later that holds text, not in UTF-8": {"pong", m{1: 1, 9: string([]byte{0xff})}, "utf-8"},
	} {
		body := c.body
		add(vector{Name: name, Rule: c.rule, Error: c.fault}, libraryEncode(t, examples[c.rule].in(body)))
	}
	for name, c := range map[string]struct{ hex, fault string }{
		"nothing":                             {"", "syntax"},
		"a message of another kind":           {"82184da10101", "unknown"},
		"a message of another kind, not CBOR": {"82184dff", "syntax"},
		"a map instead of an array":           {"a10110", "type"},
		"three parts":                         {"8310a000", "type"},
		"ping and another byte":               {"8210a000", "trailing"},
		"ping, cut short":                     {"8210", "syntax"},
		"pong with a longer integer":          {"8211a1011805", "not-deterministic"},
		"pong with keys out of order":         {"8211a2090101f5", "not-deterministic"},
		"pong with a key twice":               {"8211a201010101", "not-deterministic"},
		"pong with a longer key":              {"8211a1180101", "not-deterministic"},
		"an indefinite map":                   {"8210bfff", "syntax"},
		"a tag":                               {"8210c1a0", "type"},
		"a negative key":                      {"8210a12001", "type"},
		"a text as key":                       {"8210a1613101", "type"},
		"a later map with keys out of order":  {"8210a109a202000100", "not-deterministic"},
		"a byte string longer than the rest":  {"8208a101581f00", "syntax"},
	} {
		vectors = append(vectors, vector{Name: name, Message: c.hex, Error: c.fault})
	}
	slices.SortStableFunc(vectors, func(a, b vector) int { return strings.Compare(a.Name, b.Name) })
	return vectors
}

func mapKeys[K comparable, V any](of map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range of {
			if !yield(k) {
				return
			}
		}
	}
}

func readVectors(t *testing.T) []vector {
	t.Helper()
	data, err := os.ReadFile(vectorFile)
	if err != nil {
		if *update && os.IsNotExist(err) {
			return nil
		}
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	return vectors
}

func TestMakeVectors(t *testing.T) {
	if !*update {
		t.Skip("only with -update")
	}
	vectors := readVectors(t)
	for _, v := range makeVectors(t) {
		if !slices.ContainsFunc(vectors, func(o vector) bool { return o.Name == v.Name }) {
			vectors = append(vectors, v)
		}
	}
	data, err := json.MarshalIndent(vectors, "", "  ")
	if err == nil {
		err = os.WriteFile(vectorFile, append(data, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestVectors(t *testing.T) {
	vectors := readVectors(t)
	for _, v := range vectors {
		text, isSnapshot := v.Message, v.Snapshot != ""
		if isSnapshot {
			text = v.Snapshot
		}
		data, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		var again []byte
		if isSnapshot {
			s, derr := DecodeSnapshot(data)
			if err = derr; err == nil {
				again = EncodeSnapshot(s)
			}
		} else {
			message, derr := Decode(data)
			if err = derr; err == nil {
				again = Encode(message)
			}
		}
		switch want := faults[v.Error]; {
		case v.Error != "" && (want == nil || !errors.Is(err, want)):
			t.Errorf("%s: %v, want %q", v.Name, err, v.Error)
		case v.Error == "" && err != nil:
			t.Errorf("%s: %v", v.Name, err)
		case v.Error == "" && bytes.Equal(again, data) == v.Later && v.Rule != "act" && v.Rule != "append":
			t.Errorf("%s: encoded again it is %x", v.Name, again)
		}
	}
	for _, v := range makeVectors(t) {
		if !slices.ContainsFunc(vectors, func(o vector) bool { return o.Name == v.Name }) {
			t.Errorf("%s is not in %s: run `go test ./arbiter/wire -run Vectors -update`", v.Name, vectorFile)
		}
	}
}
