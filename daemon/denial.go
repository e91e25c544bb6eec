package daemon

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// denial is what there is to say of a write that is refused. Its strings may hold anything.
type denial struct {
	Now time.Time
	// Held are the files that somebody else holds, Free the others of the same patch; of each at least what fits is said.
	Held []heldFile
	Free []string
	// Nth says which refusal of these files it is in this turn of this context, from 1.
	Nth int
}

// heldFile is a file that somebody else holds, or whose turn it is.
type heldFile struct {
	Path string
	Root string // of the worktree
	Away bool   // its holder is on another machine
	// Spelled is the holder's path, where it differs from Path in upper and lower case; else "".
	Spelled string
	Holder  Peer
	Branch  string    // the holder's, full ref name; "": detached
	Since   time.Time // when it was claimed
	Written time.Time // when its holder wrote it last; zero: not yet
	Until   time.Time // when its lease, or the turn, ends; zero: not known
	Intent  string    // what the holder said it is doing; "": nothing that it shares
	// Place is the place of whoever is refused in the file's queue, from 1; 0: it has none.
	Place int
	// Turn says that nobody holds the file: it is kept for the holder, whose turn it is.
	Turn bool
}

// Lines of a denial. What stands in them that somebody else chose is quoted; the imperatives are knoot's own.
const (
	refusedLine = "knoot refused this edit; your tools are working. "
	noOtherWay  = "Do not make this change another way (shell, script, copy, second file, hook settings): it would collide with theirs."
	// minDenial is what a denial takes at least, whatever the budget: without a reason it would be none.
	minDenial = 120
)

// text is the reason that the agent reads, of at most budget bytes, or of minDenial if that is more.
func (d *denial) text(budget int) string {
	budget = max(budget, minDenial)
	switch {
	case d.Nth == 2:
		return d.fitting(budget, d.again, d.shortest)
	case d.Nth > 2:
		return d.fitting(budget, d.endTurn, d.shortest)
	}
	return d.fitting(budget, func() string { return d.whole(budget, maxIntentBytes) }, func() string { return d.whole(budget, 40) },
		func() string { return d.whole(budget, 0) }, d.again, d.shortest)
}

// fitting is the first of several texts that fits, or as much of the last as does.
func (d *denial) fitting(budget int, texts ...func() string) string {
	text := ""
	for _, each := range texts {
		if text = each(); len(text) <= budget {
			return text
		}
	}
	return cutText(text, budget)
}

// whole is the first refusal in a turn. Of the holder's intent at most so many bytes are shown.
func (d *denial) whole(budget, intent int) string {
	first := &d.Held[0]
	head := refusedLine + first.words(d.Now, intent)
	if n := len(d.Held) - 1; n > 0 {
		var more []string
		for i := range d.Held[1:] {
			h := &d.Held[1+i]
			more = append(more, quotePath(h.Path)+" ("+h.Holder.words()+")")
		}
		head += " Held, too: " + someOf(more, 300) + "."
	}
	tail := noOtherWay + "\n" + d.meanwhile()
	nothing := "\nNothing was written."
	if len(d.Free) > 0 {
		free := make([]string, len(d.Free))
		for i, path := range d.Free {
			free[i] = quotePath(path)
		}
		const resend = ". Resend it with those only."
		room := budget - len(head) - len(nothing) - len(" Free in this patch: ") - len(resend) - len("\n") - len(tail)
		if some := someOf(free, room); some != "" {
			nothing += " Free in this patch: " + some + resend
		}
	}
	return head + nothing + "\n" + tail
}

// meanwhile says what to do instead. Nobody is told to wait for a person.
func (d *denial) meanwhile() string {
	if slices.ContainsFunc(d.Held, func(h heldFile) bool { return h.Holder.Person }) {
		return "Work on something else that does not need it, or ask the person you work for. Do not wait for it, and do not ask anybody to move."
	}
	first := &d.Held[0]
	file, it := "this file", "it is free"
	if len(d.Held) > 1 {
		file, it = "these files", "they are free"
	}
	wait := ""
	if word := commandPath(first.Path); word != "" && len(d.Held) == 1 {
		wait = ", or run `knoot wait " + word + "`"
	}
	whom := quotePerson(first.Holder.Member)
	return fmt.Sprintf("Go on with work that does not need %s. If none is left, end your turn and tell your user that it waits for %s%s. You hear that %s at your next tool call or prompt.",
		file, whom, wait, it)
}

// again is the second refusal of a turn.
func (d *denial) again() string {
	h := &d.Held[0]
	return fmt.Sprintf("knoot refused this edit again: %s; nothing was written. Go on with other work, do not retry.", h.state(d.Now))
}

// endTurn is the third, and each after it.
func (d *denial) endTurn() string {
	h := &d.Held[0]
	if h.Holder.Person {
		return fmt.Sprintf("knoot refused this edit for the %s time: %s. End your turn and tell your user so.", ordinal(d.Nth), h.state(d.Now))
	}
	return fmt.Sprintf("knoot refused this edit for the %s time: %s. End your turn and tell your user that it waits for %s.", ordinal(d.Nth), h.state(d.Now),
		quotePerson(h.Holder.Member))
}

// shortest is for a budget that nothing else fits into.
func (d *denial) shortest() string {
	return "knoot refused this edit: another session holds the file. Nothing was written; go on with other work."
}

// state says in short who has the file.
func (h *heldFile) state(now time.Time) string {
	left := ""
	if !h.Until.IsZero() && !h.Holder.Person {
		left = ", " + remaining(h.Until.Sub(now)) + " left"
	}
	if h.Turn {
		return fmt.Sprintf("%s is kept for %s, whose turn it is (you are number %d%s)", quotePath(h.Path), h.Holder.words(), max(h.Place, 1), left)
	}
	return fmt.Sprintf("%s is still held by %s%s", quotePath(h.Path), h.Holder.words(), parenthesised(strings.TrimPrefix(left, ", ")))
}

func parenthesised(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// words say who has the file, since when, for how long, and what for; one or two sentences.
func (h *heldFile) words(now time.Time, intent int) string {
	var b strings.Builder
	b.WriteString(quotePath(h.Path))
	if h.Spelled != "" {
		b.WriteString(" (" + quotePath(h.Spelled) + " there)")
	}
	who := h.Holder.words()
	if h.Holder.Person {
		who += " (a person)"
	}
	where := "branch " + quoteName(shortBranch(h.Branch), maxBranchBytes)
	if h.Branch == "" {
		where = "no branch"
	}
	switch {
	case h.Turn:
		fmt.Fprintf(&b, " is widely shared and taken in turns: it is the turn of %s", who)
		if !h.Until.IsZero() {
			fmt.Fprintf(&b, ", for %s", remaining(h.Until.Sub(now)))
		}
	case h.Written.IsZero():
		fmt.Fprintf(&b, " is about to be changed by %s (%s, claimed %s", who, where, ago(now, h.Since))
	default:
		fmt.Fprintf(&b, " has unfinished changes by %s (%s, last write %s", who, where, ago(now, h.Written))
	}
	if !h.Turn {
		switch {
		case h.Holder.Person || h.Until.IsZero():
			b.WriteString(")")
		default:
			fmt.Fprintf(&b, "; its lease has %s, more if they go on)", remaining(h.Until.Sub(now)))
		}
	}
	if h.Intent != "" && intent > 0 {
		b.WriteString(": " + quoteText(h.Intent, intent))
	}
	b.WriteString(".")
	if h.Place > 0 {
		fmt.Fprintf(&b, " You are number %d in its queue.", h.Place)
	}
	return b.String()
}

// person is the line that the agent's person sees.
func (d *denial) person() string {
	h := &d.Held[0]
	files := quotePath(h.Path)
	if n := len(d.Held) - 1; n > 0 {
		files += " and " + count(n, "more file")
	}
	verb := "holds"
	if h.Turn {
		verb = "is next for"
	}
	return fmt.Sprintf("knoot: an edit of %s was refused, since %s %s it; your agent was told to go on with other work", files, h.Holder.words(), verb)
}

// remaining says how long something still takes, rounded up: "8 minutes", "40 seconds".
func remaining(d time.Duration) string {
	switch {
	case d <= 0:
		return "no time"
	case d > time.Minute:
		return count(int((d+time.Minute-1)/time.Minute), "minute")
	}
	return count(int((d+time.Second-1)/time.Second), "second")
}

// someOf lists as many words as fit into room bytes, and counts the rest; "" where not one does.
func someOf(words []string, room int) string {
	out := ""
	for i, word := range words {
		next := word
		if out != "" {
			next = out + ", " + word
		}
		rest := ""
		if n := len(words) - i - 1; n > 0 {
			rest = fmt.Sprintf(" and %d more", n)
		}
		if len(next)+len(rest) > room {
			if out == "" {
				return ""
			}
			return fmt.Sprintf("%s and %d more", out, len(words)-i)
		}
		out = next
	}
	return out
}

// shortBranch is a branch as people call it.
func shortBranch(ref string) string { return strings.TrimPrefix(ref, "refs/heads/") }

// commandPath returns a path as it may stand behind `knoot wait`; "" for one that a shell could take for anything but one word.
func commandPath(path string) string {
	if path == "" || len(path) > maxPathBytes || path[0] == '-' {
		return ""
	}
	for i := range len(path) {
		if c := path[i]; !wordByte(c) && !strings.ContainsRune("./-+@", rune(c)) || c >= 0x80 {
			return ""
		}
	}
	return path
}
