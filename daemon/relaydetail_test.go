package daemon

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
)

var update = flag.Bool("update", false, "add what is missing in docs/formats/vectors/detail.json")

const (
	detailVectors = "../docs/formats/vectors/detail.json"
	detailGrammar = "../docs/formats/relay.cddl"
)

// detailVector is the text of a live payload, and what it means or why it is refused.
type detailVector struct {
	Name   string       `json:"name"`
	Detail string       `json:"detail"`
	Means  *detailMeans `json:"means,omitempty"`
	Later  bool         `json:"later,omitempty"` // holds what only a later version means
	Error  string       `json:"error,omitempty"`
}

type detailMeans struct {
	Path    string   `json:"path,omitempty"` // hex, as the segment's files
	Branch  string   `json:"branch,omitempty"`
	Agent   string   `json:"agent,omitempty"`
	Session string   `json:"session,omitempty"`
	Name    string   `json:"name,omitempty"`
	Owner   string   `json:"owner,omitempty"`
	Private bool     `json:"private,omitempty"`
	Text    string   `json:"text,omitempty"`
	ID      string   `json:"id,omitempty"`
	To      string   `json:"to,omitempty"`
	Urgent  bool     `json:"urgent,omitempty"`
	Segment []string `json:"segment,omitempty"`
}

func meansOf(d relayDetail) *detailMeans {
	m := &detailMeans{Path: hex.EncodeToString(d.Path), Branch: d.Branch, Agent: d.Agent, Session: d.Session, Name: d.Name, Owner: d.Owner, Private: d.Private,
		Text: d.Text, ID: d.ID, To: d.To, Urgent: d.Urgent}
	for _, file := range d.Segment {
		m.Segment = append(m.Segment, hex.EncodeToString(file))
	}
	return m
}

// faultOf is the name that vectors give to why a detail is refused; "": it is not.
func faultOf(err error) string {
	var (
		duplicate  *cbor.DupMapKeyError
		indefinite *cbor.IndefiniteLengthError
		tag        *cbor.TagsMdError
		depth      *cbor.MaxNestedLevelError
		trailing   *cbor.ExtraneousDataError
		utf8       *cbor.SemanticError
	)
	switch {
	case err == nil:
		return ""
	case errors.As(err, &duplicate):
		return "duplicate-key"
	case errors.As(err, &indefinite):
		return "indefinite-length"
	case errors.As(err, &tag):
		return "tag"
	case errors.As(err, &depth):
		return "depth"
	case errors.As(err, &trailing):
		return "trailing"
	case errors.As(err, &utf8):
		return "utf-8"
	case errors.Is(err, errDetailOrder):
		return "not-deterministic"
	case errors.Is(err, errDetailType):
		return "type"
	case errors.Is(err, errDetailNull):
		return "null"
	case errors.Is(err, errDetailForm):
		return "syntax"
	}
	return err.Error()
}

func TestDetailVectors(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(detailVectors)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []detailVector
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		text, err := hex.DecodeString(v.Detail)
		if err != nil {
			t.Fatal(err)
		}
		d, err := decodeDetail(text)
		switch fault := faultOf(err); {
		case fault != v.Error:
			t.Errorf("%s: %q (%v), want %q", v.Name, fault, err, v.Error)
		case err != nil:
		case !reflect.DeepEqual(meansOf(d), v.Means):
			t.Errorf("%s: means %+v, want %+v", v.Name, meansOf(d), v.Means)
		case !v.Later && !bytes.Equal(d.encode(), text):
			t.Errorf("%s: encodes to %x", v.Name, d.encode())
		}
	}
}

// details are examples by the rule's keys: all of them are there, in one or another.
func details() map[string]map[uint64]any {
	return map[string]map[uint64]any{
		"of a session": {2: "refs/heads/main", 3: "claude", 4: "0c5b7d2e", 5: "reviewer", 6: "sam@example.org", 7: true},
		"of an intent": {8: "rewriting tax rounding for invoices"},
		"of a claim":   {1: []byte("src/tax.js"), 2: "refs/heads/main"},
		"of raw bytes": {1: []byte{0xff, 0x2f, 0x61}},
		"of a message": {3: "claude", 4: "0c5b7d2e", 5: "reviewer", 8: "are you at the tax?", 9: strings.Repeat("ab", 16), 10: "sam@example.org", 11: true},
		"of a segment": {12: []any{[]byte("one"), []byte("two")}},
		"of nothing":   {},
	}
}

// The grammar's keys are the decoder's.
func TestDetailGrammar(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(detailGrammar)
	if err != nil {
		t.Fatal(err)
	}
	_, rule, _ := strings.Cut(string(data), "\ndetail = {\n")
	rule, _, _ = strings.Cut(rule, "\n}")
	var keys []uint64
	for _, found := range regexp.MustCompile(`(?m)^  \? (\d+) => .*; \S`).FindAllStringSubmatch(rule, -1) {
		key, err := strconv.ParseUint(found[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	for key := uint64(1); key < 64; key++ {
		// A value that is wrong everywhere: only a decoder that knows the key minds.
		text, err := cbor.Marshal(map[uint64]any{key: -1})
		if err != nil {
			t.Fatal(err)
		}
		_, err = decodeDetail(text)
		if slices.Contains(keys, key) != errors.Is(err, errDetailType) {
			t.Errorf("key %d: in the grammar %v, known to the decoder %v (%v)", key, slices.Contains(keys, key), err != nil, err)
		}
		if slices.Contains(keys, key) && !hasExample(key) {
			t.Errorf("key %d: no example has it", key)
		}
	}
}

func hasExample(key uint64) bool {
	for _, detail := range details() {
		if _, there := detail[key]; there {
			return true
		}
	}
	return false
}

// TestMakeVectors adds, with -update, the vectors that are not in the file yet. Their bytes come from another encoder.
func TestMakeVectors(t *testing.T) {
	if !*update {
		t.Skip("only with -update")
	}
	var vectors []detailVector
	if data, err := os.ReadFile(detailVectors); err == nil {
		if err := json.Unmarshal(data, &vectors); err != nil {
			t.Fatal(err)
		}
	}
	add := func(v detailVector) {
		if !slices.ContainsFunc(vectors, func(o detailVector) bool { return o.Name == v.Name }) {
			vectors = append(vectors, v)
		}
	}
	encoding, err := cbor.CanonicalEncOptions().EncMode()
	if err != nil {
		t.Fatal(err)
	}
	encoded := func(detail map[uint64]any) string {
		text, err := encoding.Marshal(detail)
		if err != nil {
			t.Fatal(err)
		}
		return hex.EncodeToString(text)
	}
	bytesOf := func(v any) string { b, _ := v.([]byte); return hex.EncodeToString(b) }
	textOf := func(v any) string { s, _ := v.(string); return s }
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range details() {
			if !yield(name) {
				return
			}
		}
	}) {
		detail := details()[name]
		means := &detailMeans{Path: bytesOf(detail[1]), Branch: textOf(detail[2]), Agent: textOf(detail[3]), Session: textOf(detail[4]), Name: textOf(detail[5]),
			Owner: textOf(detail[6]), Private: detail[7] == true, Text: textOf(detail[8]), ID: textOf(detail[9]), To: textOf(detail[10]), Urgent: detail[11] == true}
		if files, ok := detail[12].([]any); ok {
			for _, file := range files {
				means.Segment = append(means.Segment, bytesOf(file))
			}
		}
		add(detailVector{Name: name, Detail: encoded(detail), Means: means})
		detail[30] = []any{map[uint64]any{1: "x"}, -1}
		add(detailVector{Name: name + ", with a key of later", Detail: encoded(detail), Means: means, Later: true})
	}
	for name, c := range map[string]struct{ hex, fault string }{
		"nothing":                 {"", "syntax"},
		"cut short":               {"a10144", "syntax"},
		"and another byte":        {"a000", "trailing"},
		"a key twice":             {"a201416101 4162", "duplicate-key"},
		"an indefinite map":       {"bfff", "indefinite-length"},
		"a tag":                   {"a101c14161", "tag"},
		"text that is not UTF-8":  {"a10261ff", "utf-8"},
		"nested too deeply":       {"a1181e818181818181818101", "depth"},
		"an array":                {"80", "type"},
		"a text as key":           {"a1613101", "type"},
		"a negative key":          {"a12001", "type"},
		"a path as text":          {"a1016161", "type"},
		"a branch as bytes":       {"a1024161", "type"},
		"a longer integer as key": {"a118014161", "not-deterministic"},
		"keys out of order":       {"a2026161014161", "not-deterministic"},
		"a longer length":         {"a101580161", "not-deterministic"},
		"an empty path":           {"a10140", "type"},
		"no branch":               {"a10260", "type"},
		"private that is false":   {"a107f4", "type"},
		"a text that is null":     {"a108f6", "null"},
		"a segment without files": {"a10c80", "type"},
	} {
		add(detailVector{Name: name, Detail: strings.ReplaceAll(c.hex, " ", ""), Error: c.fault})
	}
	slices.SortStableFunc(vectors, func(a, b detailVector) int { return strings.Compare(a.Name, b.Name) })
	data, err := json.MarshalIndent(vectors, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(detailVectors, append(data, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
