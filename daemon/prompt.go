package daemon

import (
	"strings"
	"unicode/utf8"
)

// prompt is what a prompt names. It shares memory with the prompt's text.
type prompt struct {
	text  string
	paths []string // path-like words: with a slash, or a dot inside
	bare  []string // capitalised words without either, such as Makefile
	words wordSet
}

// maxNamedPaths bounds the path-like words of a prompt that are looked at (a pasted log may have thousands).
const maxNamedPaths = 1024

// readPrompt finds the words of a prompt that may be paths, and the words that rank facts. root is the worktree's absolute path; an
// absolute path below it is taken relative to it.
func readPrompt(text, root string) prompt {
	p := prompt{text: text, words: newWordSet(len(text) / 8)}
	eachWord(text, p.words.add)
	seen := make(map[string]struct{}, min(len(text)/64, maxNamedPaths))
	start := -1
	for i := 0; i <= len(text); i++ {
		if i < len(text) && !wordEnd[text[i]] {
			if start < 0 {
				start = i
			}
			continue
		}
		if start >= 0 {
			p.addToken(text[start:i], root, seen)
			start = -1
		}
	}
	return p
}

// wordEnd are the bytes that no path-like word of a prompt holds. Paths with white space are looked for the other way
// round.
var wordEnd = func() (ends [256]bool) {
	for c := range 0x21 {
		ends[c] = true
	}
	for _, c := range "\"'`<>|,;=*\x7f" {
		ends[c] = true
	}
	return ends
}()

func (p *prompt) addToken(token, root string, seen map[string]struct{}) {
	if len(token) < 2 || len(p.paths)+len(p.bare) >= maxNamedPaths {
		return
	}
	pathLike, bracket := false, false
	for i := range len(token) {
		switch token[i] {
		case '/':
			pathLike = true
		case '.':
			pathLike = pathLike || i+1 < len(token)
		case '(', ')', '[', ']', '{', '}':
			bracket = true
		}
	}
	if !pathLike && !bracket {
		if token[0] >= 'A' && token[0] <= 'Z' {
			token = strings.TrimRight(token, ".,:;!?")
			p.name(&p.bare, token, seen)
		}
		return
	}
	if strings.Contains(token, "://") {
		return
	}
	if bracket {
		// app/[slug]/page.tsx is one path, [text](src/a.js) has one in brackets.
		for part := range strings.FieldsFuncSeq(token, func(r rune) bool { return strings.ContainsRune("()[]{}", r) }) {
			if part != token {
				p.addToken(part, root, seen)
			}
		}
		token = strings.Trim(token, "()[]{}")
	}
	token = strings.TrimRight(token, ".,:;!?")
	token = strings.TrimPrefix(token, "@")
	if at := strings.IndexByte(token, '#'); at > 0 && strings.HasPrefix(token[at:], "#L") {
		token = token[:at]
	}
	for range 2 { // a.js:12:5
		at := strings.LastIndexByte(token, ':')
		if at > 0 && strings.Trim(token[at+1:], "0123456789-") == "" {
			token = token[:at]
		}
	}
	if root != "" && strings.HasPrefix(token, root+"/") {
		token = token[len(root)+1:]
	}
	token = strings.TrimLeft(strings.TrimPrefix(token, "./"), "/")
	p.name(&p.paths, token, seen)
	if rest, found := strings.CutPrefix(token, "a/"); found { // as a diff has it
		p.name(&p.paths, rest, seen)
	} else if rest, found := strings.CutPrefix(token, "b/"); found {
		p.name(&p.paths, rest, seen)
	}
}

// name notes a path-like word once.
func (p *prompt) name(list *[]string, token string, seen map[string]struct{}) {
	if len(token) < 2 || len(p.paths)+len(p.bare) >= maxNamedPaths {
		return
	}
	if _, twice := seen[token]; twice {
		return
	}
	seen[token] = struct{}{}
	*list = append(*list, token)
}

// match counts the words of a fact that the prompt has, those of its name twice. It looks at the text's first KiB.
func (p *prompt) match(name, text string) int {
	if p.words.n == 0 {
		return 0
	}
	score := 0
	var known [64]uint64
	n := 0
	look := func(weight int) func(uint64) {
		return func(word uint64) {
			if n == len(known) || !p.words.has(word) || stopWord(word) {
				return
			}
			for _, k := range known[:n] {
				if k == word {
					return
				}
			}
			known[n] = word
			n++
			score += weight
		}
	}
	eachWord(name, look(2))
	eachWord(text[:min(len(text), 1024)], look(1))
	return score
}

// eachWord visits the words of text, of three bytes or more, A–Z folded, each as its hash.
func eachWord(text string, visit func(uint64)) {
	h, n := uint64(fnvOffset), 0
	for i := range len(text) {
		c := text[i]
		switch {
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c >= utf8.RuneSelf:
		default:
			if n >= 3 {
				visit(h)
			}
			h, n = fnvOffset, 0
			continue
		}
		h = (h ^ uint64(c)) * fnvPrime
		n++
	}
	if n >= 3 {
		visit(h)
	}
}

// FNV-1a, 64 bits.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// stopWords are those that say nothing about a file.
var stopWords = func() map[uint64]struct{} {
	set := make(map[uint64]struct{})
	for word := range strings.FieldsSeq(`about after all also and any are before but can could did does done each for from get
		had has have here how into its just like make more most new not now off one only our out over please see she should
		some such than that the their them then there these they this those too use used was way were what when where which
		who why will with would you your`) {
		h := uint64(fnvOffset)
		for i := range len(word) {
			h = (h ^ uint64(word[i])) * fnvPrime
		}
		set[h] = struct{}{}
	}
	return set
}()

func stopWord(h uint64) bool { _, stop := stopWords[h]; return stop }

// wordSet is a set of words' hashes, open-addressed: a map of the 10,000 words of a long prompt would take most of the
// millisecond that a brief may take.
type wordSet struct {
	slots []uint64 // a power of two of them; 0 is empty
	n     int
}

// newWordSet makes a set with room for n words, at most 8,192. More are not taken: they only rank.
func newWordSet(n int) wordSet {
	size := 16
	for size < 2*min(n, 8192) {
		size *= 2
	}
	return wordSet{slots: make([]uint64, size)}
}

func (s *wordSet) add(h uint64) {
	h |= 1 // never 0
	for i := h * fnvPrime >> 32; 2*s.n < len(s.slots); i++ {
		slot := &s.slots[i&uint64(len(s.slots)-1)]
		if *slot == h {
			return
		}
		if *slot == 0 {
			*slot = h
			s.n++
			return
		}
	}
}

func (s *wordSet) has(h uint64) bool {
	h |= 1
	for i := h * fnvPrime >> 32; ; i++ {
		switch s.slots[i&uint64(len(s.slots)-1)] {
		case h:
			return true
		case 0:
			return false
		}
	}
}
