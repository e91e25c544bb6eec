package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func scan(r io.Reader) *scanner { return newScanner(r, 1<<30, func([]byte) {}) }

// tree builds what encoding/json builds for an empty interface, with the methods that payloads are read with. Numbers and
// null are skipped: they count as nil.
func tree(s *scanner) (v any, err error) {
	c, err := s.peek()
	if err != nil {
		return nil, err
	}
	switch c {
	case '{':
		m := map[string]any{}
		err = s.object(func(key string) error {
			v, err := tree(s)
			m[key] = v
			return err
		})
		return m, err
	case '[':
		list := []any{}
		err = s.array(func() error {
			v, err := tree(s)
			list = append(list, v)
			return err
		})
		return list, err
	case '"':
		text, _, err := s.text(1 << 20)
		return text, err
	case 't', 'f':
		return s.truth()
	}
	return nil, s.skip()
}

// plainTree takes from a value of encoding/json what tree leaves out. It is false if a key is too long to be kept.
func plainTree(v any) (any, bool) {
	whole := true
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			inner, ok := plainTree(v[key])
			v[key] = inner
			whole = whole && ok && len(key) <= maxKey
		}
	case []any:
		for i := range v {
			inner, ok := plainTree(v[i])
			v[i] = inner
			whole = whole && ok
		}
	case json.Number:
		return nil, true
	}
	return v, whole
}

func checkScanner(t testing.TB, data []byte) {
	t.Helper()
	stripped := bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	want := json.Valid(stripped)
	for name, r := range map[string]io.Reader{
		"whole": bytes.NewReader(data), "bytes": iotest.OneByteReader(bytes.NewReader(data)),
		"errors with data": iotest.DataErrReader(bytes.NewReader(data)),
	} {
		s := scan(r)
		err := s.value(s.skip)
		if (err == nil) != want {
			t.Fatalf("%s: %q: %v, but encoding/json says %v", name, data, err, want)
		}
		if want && (s.utf8.valid() != utf8.Valid(data) || s.marks != (len(stripped) < len(data))) {
			t.Fatalf("%s: %q: valid %v, mark %v", name, data, s.utf8.valid(), s.marks)
		}
	}
	if !want {
		return
	}
	dec := json.NewDecoder(bytes.NewReader(stripped))
	dec.UseNumber() // numbers too large for a float are numbers
	var expect any
	if err := dec.Decode(&expect); err != nil {
		t.Fatal(err)
	}
	expect, whole := plainTree(expect)
	if !whole {
		return
	}
	for name, r := range map[string]io.Reader{
		"whole": bytes.NewReader(data), "bytes": iotest.OneByteReader(bytes.NewReader(data)),
	} {
		s := scan(r)
		var got any
		if err := s.value(func() (err error) { got, err = tree(s); return err }); err != nil {
			t.Fatalf("%s: %q: %v", name, data, err)
		}
		if !reflect.DeepEqual(got, expect) {
			t.Fatalf("%s: %q: %#v, want %#v", name, data, got, expect)
		}
	}
}

// texts are values that are right and wrong in every way that the scanner has a line for.
var texts = []string{
	`{}`, `[]`, `[[],{}]`, `{"a":{"b":[1,-0.5e+3,true,false,null,"x"]},"c":""}`, ` { "a" : [ 1 , 2 ] } `,
	`"\u00e9\ud83d\ude00\ud83d\ud83d\ude00\ud83dx\udc00\"\\\/\b\f\n\r\t"`, `"\ud83d\u12"`, `"\ud83d\uzzzz"`, `"\ud83d`, `"\ud83d\"`,
	`0`, `-0`, `01`, `-`, `1.`, `.5`, `1e`, `1e+`, `1E-7`, `1.5x`, `tru`, `truex`, `nul`, `falsee`,
	``, ` `, `{`, `[`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `[1,]`, `[1 2]`, `{"a" 1}`, `{a:1}`, `{1:1}`, `{"a":1]`, `[1}`,
	`{} {}`, `{}x`, "\"\x00\"", "\"\x1f\"", "\"a\nb\"", "\"\x7f\"", `"\x41"`, `"\u12g4"`, `"abc`, `"\`, `"\u`,
	"\"\xff\xc3\"", "\"\xc3(\xe2\x82\"", "\"\xed\xa0\x80\"", "\xef\xbb\xbf{}", "\xef\xbb{}", "\xef", "\xef\xbb\xbf", "\xef\xbb\xbf\xef\xbb\xbf{}",
	`{"a":1,"a":"2"}`, "\u00a0{}", "{}\x00", "[\"\u2028\"]",
}

func TestScannerAgreesWithEncodingJSON(t *testing.T) {
	for _, text := range texts {
		checkScanner(t, []byte(text))
	}
	for _, depth := range []int{1, 100, maxDepth, maxDepth + 1} {
		checkScanner(t, []byte(strings.Repeat("[", depth)+strings.Repeat("]", depth)))
		checkScanner(t, []byte(strings.Repeat(`{"":`, depth)+"1"+strings.Repeat("}", depth)))
	}
	long := `{"a":"` + strings.Repeat(`xé\n\ud83d\ude00`, 20000) + `","b":[` + strings.Repeat("1.5e3,", 20000) + `0]}`
	checkScanner(t, []byte(long))
}

func FuzzScanner(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkScanner(t, data) })
}

func TestTextKeepsItsBeginning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		max := rapid.IntRange(0, 20).Draw(t, "max")
		data, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		s := scan(iotest.HalfReader(bytes.NewReader(data)))
		got, cut, err := s.text(max)
		if err != nil {
			t.Fatal(err)
		}
		whole := strings.ToValidUTF8(text, "\ufffd")
		if got != cutText(whole, max) || cut != (len(whole) > max) {
			t.Errorf("%q cut to %d is %q, %v", text, max, got, cut)
		}
	})
}

func TestScannerReportsItsReader(t *testing.T) {
	broken := errors.New("broken")
	for _, text := range []string{"", "{", `{"a`, `{"a":1`, `{"a":"\u12`, "1", "tr"} {
		s := scan(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)))
		if err := s.value(s.skip); !errors.Is(err, broken) {
			t.Errorf("%q: %v", text, err)
		}
	}
	s := scan(stuck{})
	if err := s.value(s.skip); !errors.Is(err, io.ErrNoProgress) {
		t.Error(err)
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

func TestScannerLimit(t *testing.T) {
	for n, want := range map[int]error{100: nil, 101: errTooLarge, 100000: errTooLarge} {
		for _, text := range []string{strconv.Quote(strings.Repeat("x", n-2)), strings.Repeat("1", n)} {
			s := newScanner(iotest.HalfReader(strings.NewReader(text)), 100, func([]byte) {})
			if err := s.value(s.skip); !errors.Is(err, want) {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
	}
}

func TestUTF8CheckOfParts(t *testing.T) {
	piece := rapid.SampledFrom([]string{"a", "é", "€", "😀", "\xff", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xed\xa0\x80", "\x80", "\xc0\xaf"})
	rapid.Check(t, func(t *rapid.T) {
		data := []byte(strings.Join(rapid.SliceOf(piece).Draw(t, "pieces"), ""))
		var u utf8Check
		for rest := data; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "part")
			u.write(rest[:n])
			rest = rest[n:]
		}
		if u.valid() != utf8.Valid(data) {
			t.Errorf("%q: %v", data, u.valid())
		}
	})
}
