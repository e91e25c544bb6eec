package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxDecidedBytes is what one thing that was decided may take in a line.
const maxDecidedBytes = 160

// words name a peer: "sam" (a person), "sam's agent", `sam's agent "reviewer"`.
func (p Peer) words() string {
	words := authorWords(p.Member, !p.Person)
	if p.Agent != "" && !p.Person {
		words += " " + quoteText(p.Agent, maxNameBytes)
	}
	return words
}

// peerLine tells of a peer whose work touches the session's.
func peerLine(p *BriefPeer, how peerNearness, file string) string {
	var b strings.Builder
	b.WriteString("- " + p.words())
	if p.Person {
		b.WriteString(" (a person)")
	}
	if how == sameTask {
		b.WriteString(" is at a similar task ")
	} else {
		fmt.Fprintf(&b, " is in %s", quotePath(file))
		if n := len(p.Files) - 1; n > 0 {
			b.WriteString(" and " + count(n, "more file"))
		}
		b.WriteString(" ")
	}
	b.WriteString(whereWords(p))
	if p.Plan != "" {
		b.WriteString(": " + quoteText(p.Plan, maxIntentBytes))
		if p.Derived {
			b.WriteString(" (derived)")
		}
	}
	b.WriteString(decidedWords(p.Decided))
	if p.Person {
		b.WriteString("; agents neither wait for a person nor ask them to move")
	}
	return b.String()
}

// decidedWords follow a plan with what was decided.
func decidedWords(decided []string) string {
	var b strings.Builder
	for i, d := range decided {
		if i == 3 {
			fmt.Fprintf(&b, "; %d more", len(decided)-i)
			break
		}
		if i == 0 {
			b.WriteString("; decided: ")
		} else {
			b.WriteString(", ")
		}
		// One word is shown as it is; more could be read as a sentence of knoot's.
		if shown := quoteName(d, maxDecidedBytes); !strings.Contains(shown, " ") {
			b.WriteString(shown)
		} else {
			b.WriteString(quoteText(d, maxDecidedBytes))
		}
	}
	return b.String()
}

// whereWords say where a peer works, as seen by whoever is told.
func whereWords(p *BriefPeer) string {
	switch {
	case p.Here:
		return "in your working tree"
	case p.SameBranch:
		return "on this branch"
	}
	return "on " + branchWords(p.Branch)
}

// maxPresent is how many of those who are here a line names.
const maxPresent = 6

// presenceLine says who else is here: members' agents counted by where they are, people by name.
func presenceLine(all []*BriefPeer) string {
	type group struct {
		who, where string
		person     bool
	}
	var order []group
	counts := map[group]int{}
	for _, p := range all {
		g := group{who: quotePerson(p.Member), where: whereWords(p), person: p.Person}
		if counts[g] == 0 {
			order = append(order, g)
		}
		counts[g]++
	}
	// People first, then where most are; always alike, so that the line is another only if something changed.
	slices.SortFunc(order, func(a, b group) int {
		return cmp.Or(compareBool(b.person, a.person), cmp.Compare(counts[b], counts[a]), strings.Compare(a.who, b.who), strings.Compare(a.where, b.where))
	})
	var parts []string
	rest := 0
	for i, g := range order {
		n := counts[g]
		switch {
		case i >= maxPresent:
			rest += n
		case g.person:
			parts = append(parts, g.who+" (a person) "+g.where)
		case n == 1:
			parts = append(parts, "an agent of "+g.who+" "+g.where)
		default:
			parts = append(parts, fmt.Sprintf("%d agents of %s %s", n, g.who, g.where))
		}
	}
	if rest > 0 {
		parts = append(parts, fmt.Sprintf("%d more (knoot who)", rest))
	}
	return "- also at work here: " + strings.Join(parts, ", ")
}

// queueLine tells of a hub's queue.
func queueLine(q *BriefQueue) string {
	line := fmt.Sprintf("- %s is widely shared: %s in its queue", quotePath(q.Path), count(q.Waiting, "session"))
	if q.Place > 0 {
		line += ", you are the " + ordinal(q.Place)
	}
	return line
}
