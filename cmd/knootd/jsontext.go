package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"sort"
	"strings"
)

// jsonValue is a JSON value with its place in the text it was read from, so that a part of a file can be changed
// while every other byte of it stays.
//
// tidwall/sjson keeps what is before and between the members of an object, and no more: tried (1.2.9) on the 15 files of foreignSettings
// and the like, adding a hook and deleting it again gave 7 back. A member added at the top takes whatever follows the last brace with
// it (the file's last newline), a file with a byte order mark is replaced whole, of two members of one name it changes the first (agents
// read the last), a file that is no JSON is changed into another one that is none, and what it adds stands on one line.
type jsonValue struct {
	start, end int // text[start:end] is the value
	kind       byte
	items      []jsonItem // of an object ('{') or an array ('[')
}

// jsonItem is an element of an array, or a member of an object (then key is set and start is the key's).
type jsonItem struct {
	start int
	key   string
	value *jsonValue
}

var errNotJSON = errors.New("it is not plain JSON (a comment, perhaps, or a stray comma)")

// readJSON finds the places of all values in text.
func readJSON(text []byte) (*jsonValue, error) {
	if !json.Valid(text) {
		return nil, errNotJSON
	}
	r := jsonReader{text: text}
	r.space()
	return r.value(), nil
}

// jsonReader walks over text that is known to be valid.
type jsonReader struct {
	text []byte
	at   int
}

func (r *jsonReader) space() {
	for r.at < len(r.text) && bytes.IndexByte([]byte(" \t\r\n"), r.text[r.at]) >= 0 {
		r.at++
	}
}

func (r *jsonReader) value() *jsonValue {
	v := &jsonValue{start: r.at, kind: r.text[r.at]}
	switch v.kind {
	case '{', '[':
		r.at++
		for r.space(); r.text[r.at] != '}' && r.text[r.at] != ']'; r.space() {
			if r.text[r.at] == ',' {
				r.at++
				r.space()
			}
			item := jsonItem{start: r.at}
			if v.kind == '{' {
				item.key = r.string()
				r.space()
				r.at++ // the colon
				r.space()
			}
			item.value = r.value()
			v.items = append(v.items, item)
		}
		r.at++
	case '"':
		r.string()
	default:
		for r.at < len(r.text) && bytes.IndexByte([]byte(",]} \t\r\n"), r.text[r.at]) < 0 {
			r.at++
		}
	}
	v.end = r.at
	return v
}

func (r *jsonReader) string() string {
	start := r.at
	for r.at++; r.text[r.at] != '"'; r.at++ {
		if r.text[r.at] == '\\' {
			r.at++
		}
	}
	r.at++
	var s string
	_ = json.Unmarshal(r.text[start:r.at], &s) // valid, so it cannot fail
	return s
}

// member returns the member that a reader of the object would see: the last of that name.
func (v *jsonValue) member(key string) *jsonValue {
	if v == nil || v.kind != '{' {
		return nil
	}
	for i := len(v.items) - 1; i >= 0; i-- {
		if v.items[i].key == key {
			return v.items[i].value
		}
	}
	return nil
}

// text returns a string's value, and "" for anything else.
func (v *jsonValue) text(doc []byte) string {
	if v == nil || v.kind != '"' {
		return ""
	}
	var s string
	_ = json.Unmarshal(doc[v.start:v.end], &s)
	return s
}

// layout is how a file is written, so that what is added looks like the rest.
type layout struct{ newline, indent string }

func layoutOf(doc []byte, top *jsonValue) layout {
	l := layout{newline: "\n", indent: "  "}
	if bytes.Contains(doc, []byte("\r\n")) {
		l.newline = "\r\n"
	}
	if len(top.items) > 0 {
		before := string(doc[top.start+1 : top.items[0].start])
		if i := strings.LastIndexByte(before, '\n'); i >= 0 && i+1 < len(before) {
			l.indent = before[i+1:]
		}
	}
	return l
}

// line begins a line at a depth.
func (l layout) line(depth int) string { return l.newline + strings.Repeat(l.indent, depth) }

// appendItem returns the insertion that makes text the last item of v, whose items stand at depth. Into an empty
// container it goes without any white space: removeItems tells by that a container that was there from one that
// was made for the item.
func appendItem(v *jsonValue, l layout, depth int, text string) insertion {
	if len(v.items) == 0 {
		return insertion{v.start + 1, text}
	}
	return insertion{v.items[len(v.items)-1].value.end, "," + l.line(depth) + text}
}

type insertion struct {
	at   int
	text string
}

func insertAll(doc []byte, insertions []insertion) []byte {
	sort.SliceStable(insertions, func(i, j int) bool { return insertions[i].at < insertions[j].at })
	var out []byte
	from := 0
	for _, in := range insertions {
		out = append(append(out, doc[from:in.at]...), in.text...)
		from = in.at
	}
	return append(out, doc[from:]...)
}

type span struct{ from, to int }

func cutAll(doc []byte, cuts []span) []byte {
	sort.Slice(cuts, func(i, j int) bool { return cuts[i].from < cuts[j].from })
	var out []byte
	from := 0
	for _, c := range cuts {
		out = append(out, doc[from:c.from]...)
		from = c.to
	}
	return append(out, doc[from:]...)
}

// removeItems says what to cut so that the items for which gone holds leave v. whole is true, and nothing is cut,
// where all of v's items go and v was made for them: then v itself should go.
func removeItems(v *jsonValue, gone []bool) (cuts []span, whole bool) {
	first := -1 // the first item that stays
	for i := range v.items {
		if !gone[i] {
			first = i
			break
		}
	}
	switch {
	case len(v.items) == 0:
		return nil, false
	case first < 0 && v.items[0].start == v.start+1:
		return []span{{v.items[0].start, v.items[len(v.items)-1].value.end}}, false
	case first < 0:
		return nil, true
	case first > 0:
		cuts = append(cuts, span{v.items[0].start, v.items[first].start})
	}
	for i := first + 1; i < len(v.items); i++ {
		if gone[i] {
			cuts = append(cuts, span{v.items[i-1].value.end, v.items[i].value.end})
		}
	}
	return cuts, false
}
