package daemon

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// LineDigest stands for a line of a brief: for what it says, not for how old that is said to be.
type LineDigest [16]byte

func (d LineDigest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText writes a digest as 32 hex digits.
func (d LineDigest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText reads 32 hex digits.
func (d *LineDigest) UnmarshalText(text []byte) error {
	if len(text) != 2*len(d) {
		return fmt.Errorf("a line's digest of %d digits: want %d", len(text), 2*len(d))
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// Told are the digests of what a context was shown. In JSON it is a sorted array.
type Told map[LineDigest]struct{}

// Add marks lines as told. The zero Told must be made first.
func (t Told) Add(digests ...LineDigest) {
	for _, d := range digests {
		t[d] = struct{}{}
	}
}

func (t Told) has(d LineDigest) bool { _, ok := t[d]; return ok }

// MarshalJSON writes a sorted array.
func (t Told) MarshalJSON() ([]byte, error) {
	all := make([]LineDigest, 0, len(t))
	for d := range t {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b LineDigest) int { return slices.Compare(a[:], b[:]) })
	return json.Marshal(all)
}

// UnmarshalJSON reads an array.
func (t *Told) UnmarshalJSON(text []byte) error {
	var all []LineDigest
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	*t = make(Told, len(all))
	t.Add(all...)
	return nil
}

// digestOf is the digest of a list of texts; the first says what kind of line it is.
func digestOf(parts ...string) LineDigest {
	out := make([]byte, 0, 256)
	for _, p := range parts {
		out = appendPart(out, p)
	}
	return sum(out)
}

func appendPart(out []byte, part string) []byte {
	return append(binary.AppendUvarint(out, uint64(len(part))), part...)
}

func sum(text []byte) LineDigest {
	full := sha256.Sum256(text)
	return LineDigest(full[:])
}

// A fact has three digests: of its name, of its text under this name, and of all that its lines say. Author, age and paths are
// in none: who was told a fact for one of its paths is not told it again for the other, nor when it was confirmed.

// lineDigest is the digest of all that a fact's lines say.
func lineDigest(f *BriefFact) LineDigest {
	buf := appendPart(appendFact(make([]byte, 0, 512), "line", f), f.Text)
	if f.Stale {
		buf = append(buf, 1)
	} else {
		buf = append(buf, 0)
	}
	buf = appendLasting(buf, f.Reason)
	for _, a := range f.Disagrees {
		buf = appendPart(appendPart(buf, a.Name), strconv.FormatBool(a.Agent))
	}
	return sum(buf)
}

// knownDigests are those of a fact's name, and of its text under this name.
func knownDigests(f *BriefFact) (name, text LineDigest) {
	buf := make([]byte, 0, 512)
	return sum(appendFact(buf, "name", f)), sum(appendPart(appendFact(buf, "text", f), f.Text))
}

func appendFact(buf []byte, what string, f *BriefFact) []byte {
	kind := "fact"
	if f.Cache {
		kind = "cache"
	}
	return appendPart(appendPart(appendPart(appendPart(buf, what), kind), f.Room), f.Name)
}

// appendLasting appends the words of a text without what may change and leave it the same: ages ("2 hours ago"), counts of
// lines ("31 of 210 lines"), and what was changed here on top.
func appendLasting(out []byte, text string) []byte {
	if text == "" {
		return append(out, 0)
	}
	words := strings.Fields(text)
	for i := 0; i < len(words); i++ {
		word := func(n int) string {
			if i+n < len(words) {
				return strings.Trim(words[i+n], "(),.;:")
			}
			return ""
		}
		switch {
		case word(0) == "just" && word(1) == "now":
			i++
		case number(word(0)) && word(2) == "ago":
			i += 2
		case number(word(0)) && word(1) == "of" && number(word(2)) && (word(3) == "line" || word(3) == "lines"):
			i += 3
		case word(0) == "and" && word(1) == "it" && word(2) == "changed" && word(3) == "here" && word(4) == "since":
			i += 6
		default:
			out = appendPart(out, strings.Trim(words[i], ",;"))
		}
	}
	return append(out, 0)
}

func number(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func changedFileDigest(f *ChangedFile) LineDigest {
	when := f.Commit
	if when == "" && !f.At.IsZero() {
		when = strconv.FormatInt(f.At.UnixMilli(), 10)
	}
	return digestOf("file", f.Path, f.By, when, strconv.FormatBool(f.Gone))
}
