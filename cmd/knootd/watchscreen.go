package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/daemon"
	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// watchScreen is what `knoot watch` shows. What others chose (names, intents, paths, texts) is cleaned when it is put into a
// row, so that nothing but its own styles can act on the terminal.
type watchScreen struct {
	title         string // of the repository
	colour        bool
	width, height int

	now    *daemon.Watch        // nil: nothing is known
	events []daemon.WatchEvent  // oldest first
	failed error                // the last request's
	part   int                  // which part the keys scroll
	from   [watchParts]int      // the first row shown of each
	shown  [watchParts]partSize // as last drawn
}

// The parts of the screen.
const (
	whoPart = iota
	filesPart
	eventsPart
	memoryPart
	watchParts
)

// partSize says how many rows a part has, and how many of them fit.
type partSize struct{ rows, fit int }

// maxWatched is how many events can be scrolled through.
const maxWatched = 500

// take takes in what the daemon answered; anew: with all events that it knows.
func (s *watchScreen) take(w *daemon.Watch, anew bool) {
	if anew {
		s.events = nil
	}
	s.now = w
	s.events = append(s.events, w.Events...)
	s.events = s.events[max(0, len(s.events)-maxWatched):]
}

// turn chooses the part that the keys scroll.
func (s *watchScreen) turn(by int) { s.part = (s.part + by + watchParts) % watchParts }

// scroll moves the chosen part by so many rows.
func (s *watchScreen) scroll(by int) {
	size := s.shown[s.part]
	s.from[s.part] = min(max(s.from[s.part]+by, 0), max(size.rows-size.fit, 0))
}

// Styles, as the numbers of SGR.
const (
	boldStyle   = "1"
	dimStyle    = "2"
	greenStyle  = "32"
	yellowStyle = "33"
	redStyle    = "31"
	cyanStyle   = "36"
	titleStyle  = "1;36"
)

func (s *watchScreen) styled(style, text string) string {
	if !s.colour || text == "" || style == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// cell is a piece of a row: text that is clean already, with a style.
type cell struct{ style, text string }

// row makes cells a line of a width, cut where they are longer.
func (s *watchScreen) row(width int, cells ...cell) string {
	var b strings.Builder
	left := width
	for _, c := range cells {
		if left <= 0 {
			break
		}
		text := ansi.Truncate(c.text, left, "…")
		left -= ansi.StringWidth(text)
		b.WriteString(s.styled(c.style, text))
	}
	return b.String() + strings.Repeat(" ", max(left, 0))
}

// column makes a text so wide, cut or filled with spaces.
func column(text string, width int) string {
	text = ansi.Truncate(text, width, "…")
	return text + strings.Repeat(" ", max(width-ansi.StringWidth(text), 0))
}

// draw returns the whole screen.
func (s *watchScreen) draw(now time.Time) string {
	if s.width < 20 || s.height < 4 {
		return "knoot watch: too small"
	}
	lines := []string{s.header(now)}
	body := s.height - 2
	switch {
	case s.now == nil:
		lines = append(lines, s.nothing(body)...)
	case s.width >= 160 && body >= 12:
		left := s.width*11/20 - 1
		right := s.width - left - 2
		a := s.stack(body, left, now, whoPart, filesPart)
		b := s.stack(body, right, now, eventsPart, memoryPart)
		for i := range a {
			lines = append(lines, a[i]+"  "+b[i])
		}
	default:
		lines = append(lines, s.stack(body, s.width, now, whoPart, filesPart, eventsPart, memoryPart)...)
	}
	return strings.Join(append(lines, s.footer()), "\n")
}

func (s *watchScreen) header(now time.Time) string {
	text := plain(s.title)
	if s.now != nil {
		sessions, people, files := 0, 0, 0
		for _, each := range s.now.Standing.Sessions {
			if each.Person {
				people++
			} else {
				sessions++
			}
			files += len(each.Claims)
		}
		text += "  " + plural(sessions, "session")
		if people == 1 {
			text += ", 1 person"
		} else if people > 1 {
			text += fmt.Sprintf(", %d people", people)
		}
		text += ", " + plural(files, "file") + " held"
	}
	clock := now.Format(time.TimeOnly)
	left := s.width - len(clock) - 1
	return s.row(left, cell{titleStyle, "knoot "}, cell{boldStyle, text}) + " " + s.styled(dimStyle, clock)
}

func (s *watchScreen) footer() string {
	if s.failed != nil && s.now != nil {
		return s.row(s.width, cell{yellowStyle, s.trouble()})
	}
	return s.row(s.width, cell{boldStyle, "q"}, cell{dimStyle, " quit   "}, cell{boldStyle, "tab"}, cell{dimStyle, " next part   "},
		cell{boldStyle, "↑ ↓"}, cell{dimStyle, " scroll it   "}, cell{boldStyle, "g G"}, cell{dimStyle, " its begin, its end"})
}

func (s *watchScreen) trouble() string {
	if errors.Is(s.failed, socket.ErrAbsent) {
		return "No daemon runs. A session's first hook starts one; this screen then goes on by itself."
	}
	return plain(oneLine(s.failed.Error()))
}

// nothing fills the screen while no daemon answers.
func (s *watchScreen) nothing(height int) []string {
	lines := []string{""}
	if s.failed != nil {
		for _, line := range wrap(s.trouble(), s.width-2) {
			lines = append(lines, " "+line)
		}
	}
	for len(lines) < height {
		lines = append(lines, "")
	}
	return lines[:height]
}

// stack puts parts below each other, each with a title, into a height.
func (s *watchScreen) stack(height, width int, now time.Time, parts ...int) []string {
	rows := make([][]string, len(parts))
	for i, part := range parts {
		rows[i] = s.rows(part, width-1, now)
	}
	fit := share(height, rows, parts)
	var lines []string
	for i, part := range parts {
		if fit[i] == 0 {
			continue
		}
		lines = append(lines, s.heading(part, width))
		n := fit[i] - 1
		s.shown[part] = partSize{rows: len(rows[i]), fit: n}
		from := min(s.from[part], max(len(rows[i])-n, 0))
		below := len(rows[i]) - from - n
		for at := range n {
			switch {
			case from+at >= len(rows[i]):
				lines = append(lines, strings.Repeat(" ", width))
			case at == n-1 && below > 0 && n > 1:
				lines = append(lines, " "+s.row(width-1, cell{dimStyle, fmt.Sprintf("… %d more below", below+1)}))
			default:
				lines = append(lines, " "+rows[i][from+at])
			}
		}
	}
	for len(lines) < height {
		lines = append(lines, strings.Repeat(" ", width))
	}
	return lines
}

// share divides a height among parts: with its title each, a row at a time to whoever still needs one, who is here and what
// happened twice as often. What nobody needs goes to what happened, so that memory stays at the bottom. A part that gets
// nothing is left out.
func share(height int, rows [][]string, parts []int) []int {
	fit := make([]int, len(parts))
	left := height
	for i := range parts {
		if left >= 2 {
			fit[i], left = 2, left-2
		}
	}
	for given := true; given && left > 0; {
		given = false
		for i, part := range parts {
			turns := 1
			if part == whoPart || part == eventsPart {
				turns = 2
			}
			for range turns {
				if left > 0 && fit[i] > 0 && fit[i]-1 < len(rows[i]) {
					fit[i], left, given = fit[i]+1, left-1, true
				}
			}
		}
	}
	for i, part := range parts {
		if fit[i] > 0 && (part == eventsPart || part == filesPart && len(parts) == 2) {
			fit[i] += left
		}
	}
	return fit
}

func (s *watchScreen) heading(part, width int) string {
	names := [watchParts]string{"Who is here", "Files", "What happened", "Memory"}
	name := names[part]
	if part == memoryPart && s.now.All > 0 {
		name += fmt.Sprintf(" (%d)", s.now.All)
	}
	style := boldStyle
	mark := "─ "
	if part == s.part {
		style, mark = titleStyle, "▸ "
	}
	rule := strings.Repeat("─", max(width-ansi.StringWidth(name)-4, 0))
	return s.row(width, cell{dimStyle, mark}, cell{style, name}, cell{dimStyle, " " + rule})
}

func (s *watchScreen) rows(part, width int, now time.Time) []string {
	switch part {
	case whoPart:
		return s.whoRows(width)
	case filesPart:
		return s.fileRows(width, now)
	case eventsPart:
		return s.eventRows(width, now)
	default:
		return s.factRows(width, now)
	}
}

// widest is how much room the widest of some texts takes, least to most.
func widest(least, most int, texts ...string) int {
	n := least
	for _, text := range texts {
		n = max(n, ansi.StringWidth(text))
	}
	return min(n, max(most, least))
}

// labels are what the sessions here are called.
func (s *watchScreen) labels() (out []string) {
	for i := range s.now.Standing.Sessions {
		out = append(out, plain(s.now.Standing.Label(&s.now.Standing.Sessions[i])))
	}
	return out
}

// whoRows are two rows a session: who, where and what of; then what they do.
func (s *watchScreen) whoRows(width int) (rows []string) {
	standing := s.now.Standing
	if len(standing.Sessions) == 0 {
		return []string{s.row(width, cell{dimStyle, "Nobody. Start an agent in this repository."})}
	}
	names := widest(8, width/3, s.labels()...)
	var all []string
	for _, each := range standing.Sessions {
		all = append(all, plain(shortBranch(each.Branch)))
	}
	branches := widest(4, width/5, all...)
	for i := range standing.Sessions {
		each := &standing.Sessions[i]
		mark, style := "● ", greenStyle
		if each.Person {
			mark, style = "◆ ", cyanStyle
		}
		branch := "no branch"
		if each.Branch != "" {
			branch = plain(shortBranch(each.Branch))
		}
		first := []cell{{style, mark}, {boldStyle, column(plain(standing.Label(each)), names)}, {"", "  "}, {dimStyle, column(branch, branches)}, {"", "  "}}
		var states []cell
		if each.Person {
			states = append(states, cell{cyanStyle, "a person"})
		}
		if n := len(each.Claims); n > 0 {
			states = append(states, cell{greenStyle, "holds " + plural(n, "file")})
		}
		for _, path := range each.Waiting {
			text := "waits for " + plain(path)
			if by := holderOf(standing, each, path); by != "" {
				text += " (" + plain(by) + ")"
			}
			states = append(states, cell{yellowStyle, text})
		}
		for n, state := range states {
			if n > 0 {
				first = append(first, cell{dimStyle, ", "})
			}
			first = append(first, state)
		}
		rows = append(rows, s.row(width, first...))
		if doing := doingOf(each); doing != "" {
			rows = append(rows, s.row(width, cell{dimStyle, "  " + doing}))
		}
	}
	return rows
}

// doingOf says in a line what a session does: its plan, or what it was asked.
func doingOf(each *daemon.StandingSession) string {
	text := ""
	switch {
	case each.Plan != "":
		text = "plans: " + plain(oneLine(each.Plan))
	case each.Intent != "":
		text = "“" + plain(oneLine(each.Intent)) + "”"
	}
	for i, d := range each.Decided {
		if i == 0 {
			text = strings.TrimPrefix(text+"; decided: ", "; ")
		} else {
			text += ", "
		}
		text += plain(oneLine(d))
	}
	return text
}

// fileRows are the files that are held, and those that somebody waits for.
func (s *watchScreen) fileRows(width int, now time.Time) (rows []string) {
	labels, all := s.labels(), []string{}
	for _, each := range s.now.Standing.Sessions {
		for _, k := range each.Claims {
			all = append(all, plain(k.Path))
		}
	}
	for _, h := range s.now.Hubs {
		if h.Holder == "" && len(h.Queue) > 0 {
			all, labels = append(all, plain(h.Path)), append(labels, "next: "+plain(h.Queue[0]))
		}
	}
	holder := widest(8, width/3, labels...)
	paths := widest(10, width-holder-27, all...)
	for i := range s.now.Standing.Sessions {
		each := &s.now.Standing.Sessions[i]
		for _, k := range each.Claims {
			style := ""
			if k.Until.Time().Sub(now) < time.Minute {
				style = yellowStyle
			}
			cells := []cell{{"", column(plain(k.Path), paths)}, {"", "  "}, {greenStyle, column(plain(s.now.Standing.Label(each)), holder)}, {"", "  "},
				{style, fmt.Sprintf("%6s left", lease(k.Until, now))}}
			if k.Hub {
				cells = append(cells, cell{cyanStyle, "  hub"})
			}
			n := 0
			for w := range s.now.Standing.Sessions {
				if inTheWayOf(&s.now.Standing.Sessions[w], each, k) {
					n++
				}
			}
			if n > 0 {
				cells = append(cells, cell{yellowStyle, fmt.Sprintf("  %d wait", n)})
			}
			rows = append(rows, s.row(width, cells...))
		}
	}
	for _, h := range s.now.Hubs {
		if h.Holder == "" && len(h.Queue) > 0 {
			rows = append(rows, s.row(width, cell{"", column(plain(h.Path), paths)}, cell{"", "  "}, cell{yellowStyle, column("next: "+plain(h.Queue[0]), holder)}, cell{"", "  "},
				cell{"", fmt.Sprintf("%6s left", lease(h.Until, now))}, cell{cyanStyle, "  hub"}, cell{yellowStyle, fmt.Sprintf("  %d wait", len(h.Queue))}))
		}
	}
	if len(rows) == 0 {
		return []string{s.row(width, cell{dimStyle, "All are free."})}
	}
	return rows
}

// eventRows are what happened, the newest first.
func (s *watchScreen) eventRows(width int, now time.Time) (rows []string) {
	labels := s.labels()
	for i := range s.events {
		labels = append(labels, plain(s.events[i].Who))
	}
	names := widest(8, width/4, labels...)
	for i := len(s.events) - 1; i >= 0; i-- {
		e := &s.events[i]
		at := e.At.Time().In(now.Location())
		when := at.Format(time.TimeOnly)
		if at.YearDay() != now.YearDay() || at.Year() != now.Year() {
			when = at.Format("02 Jan  ")[:8]
		}
		style, text := happenedText(e)
		rows = append(rows, s.row(width, cell{dimStyle, when + "  "}, cell{"", column(plain(e.Who), names)}, cell{"", "  "}, cell{style, text}))
	}
	if len(rows) == 0 {
		return []string{s.row(width, cell{dimStyle, "Nothing yet."})}
	}
	return rows
}

// happenedText says what happened, in words that follow a session's name, and the style of it.
func happenedText(e *daemon.WatchEvent) (style, text string) {
	path, other, said := plain(e.Path), plain(e.Other), plain(oneLine(e.Text))
	by := func(words string) string {
		if other == "" {
			return ""
		}
		return words + other
	}
	switch e.Kind {
	case "SessionStarted":
		return dimStyle, "is here"
	case "SessionEnded":
		return dimStyle, "is gone"
	case "IntentDeclared":
		return "", "set out: “" + said + "”"
	case "PlanDeclared":
		if said == "" {
			return dimStyle, "has no plan any more"
		}
		return "", "plans: “" + said + "”"
	case "ClaimAcquired":
		return greenStyle, "claimed " + path
	case "ClaimDenied":
		return redStyle, "was refused " + path + by(", held by ")
	case "ClaimReleased":
		switch arbiter.Reason(e.Reason) {
		case arbiter.Taken:
			return yellowStyle, "lost " + path + by(" to ")
		case arbiter.Moved, arbiter.RelaysOrder:
			return yellowStyle, "lost " + path + by(" to ")
		case arbiter.Expired:
			return dimStyle, "let the lease on " + path + " run out"
		}
		return dimStyle, "let go of " + path
	case "ClaimLeft":
		return yellowStyle, "left changes in " + path
	case "BranchMoved":
		return dimStyle, "went to " + plain(shortBranch(e.Branch))
	case "HubTurn":
		return "", "is next for " + path
	case "PathFreed":
		return greenStyle, "hears that " + path + " is free"
	case "FileWritten":
		return "", "wrote " + path
	case "PathRemoved":
		return yellowStyle, "removed " + path
	case "UngatedWrite":
		return redStyle, "changed " + path + by(" though held by ")
	case "CrossBranchOverlap":
		return yellowStyle, "is at " + path + by(" like ") + " on another branch"
	case "StaleRead":
		return yellowStyle, "had read an older " + path
	case "CreateCollision":
		return yellowStyle, "made " + path + by(", and so did ")
	case "DuplicateIntent":
		return yellowStyle, "may do the same" + by(" as ")
	case "MemoryRefused":
		return yellowStyle, "was refused something to remember"
	}
	return dimStyle, strings.TrimSpace(plain(e.Kind) + " " + path)
}

// factRows are the facts that count, the newest first.
func (s *watchScreen) factRows(width int, now time.Time) (rows []string) {
	var all []string
	for _, f := range s.now.Facts {
		all = append(all, "⚠ "+plain(f.Name))
	}
	names := widest(8, width/5, all...)
	for _, f := range s.now.Facts {
		by := plain(f.Author)
		if f.Agent {
			by += "'s agent"
		}
		tail := "  " + by + ", " + gitlog.Age(f.At, gitlog.MillisOf(now))
		text := max(width-names-2-ansi.StringWidth(tail), 10)
		name := cell{boldStyle, column(plain(f.Name), names)}
		if f.Stale {
			name = cell{yellowStyle, column("⚠ "+plain(f.Name), names)}
		}
		rows = append(rows, s.row(width, name, cell{"", "  "}, cell{"", column(plain(oneLine(f.Text)), text)}, cell{dimStyle, tail}))
	}
	if len(rows) == 0 {
		return []string{s.row(width, cell{dimStyle, "Nothing is remembered: knoot remember --name N --path P TEXT"})}
	}
	return rows
}
