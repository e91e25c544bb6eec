package daemon

import (
	"fmt"
	"strings"
	"time"
)

// The bytes that a message and an intent may take in a line.
const (
	maxMessageBytes = 500
	maxIntentBytes  = 160
)

// holdHeading opens what a turn is held open for.
const holdHeading = "knoot kept this turn open, once: what you waited for has come. If your task does not need it, end the turn."

// newsLine is the line of one piece of news. nth says that the context was told the same of the same file before.
func newsLine(n *News, now time.Time, nth int) string {
	path, who, when := quotePath(n.Path), n.By.words(), ago(now, n.time())
	again := againWords(nth)
	switch n.Kind {
	case NewsFreed:
		line := fmt.Sprintf("- %s, which you were denied, is free now%s", path, again)
		if n.By != (Peer{}) {
			line += ": " + who + " is done with it; read it before you write it"
		}
		return line
	case NewsTurn:
		return fmt.Sprintf("- %s, which you were denied, is kept for you for %s%s: it is your turn in its queue", path, left(n.Until.Time().Sub(now)), again)
	case NewsTaken:
		return fmt.Sprintf("- %s, which you held, was taken by %s, a person, %s%s: your claim on it has ended", path, quotePerson(n.By.Member), when, again)
	case NewsChanged, NewsRemoved:
		verb, end := "changed", "read it again before you rely on it"
		if n.Kind == NewsRemoved {
			verb, end = "removed", "it is gone"
		}
		return fmt.Sprintf("- %s, which you read, was %s %s %s%s: %s", path, verb, byWords(n, who), when, again, placeWords(n, end))
	case NewsCollision:
		return fmt.Sprintf("- %s, which you created, was created by %s too, %s%s (%s): a merge will bring both", path, who, when, again, branchWords(n.Branch))
	case NewsUngated:
		if n.Place == OtherMachine {
			return fmt.Sprintf("- %s, at which you are, was written by %s on another machine %s%s without asking: the two changes will meet in a merge", path, who, when, again)
		}
		if n.Unsure || n.Denied {
			return fmt.Sprintf("- %s, which you hold, was changed %s %s%s: check what it holds before you go on", path, byWords(n, who), when, again)
		}
		return fmt.Sprintf("- %s, which you hold, was written by %s %s%s without asking: check what it holds before you go on", path, who, when, again)
	case NewsCrossed:
		if n.Place == OtherMachine {
			return fmt.Sprintf("- %s, which you wrote %s%s, is held by %s on another machine%s: the two changes will meet in a merge", path, when, again, who, saidWords(n.Text))
		}
		if n.Denied {
			return fmt.Sprintf("- %s was changed though your write of it was refused, %s%s, and is held by %s%s: both changes may be in it now", path, when, again, who, saidWords(n.Text))
		}
		if n.Unsure {
			return fmt.Sprintf("- %s was changed while your command ran, %s%s, and is held by %s%s: both changes may be in it now", path, when, again, who, saidWords(n.Text))
		}
		return fmt.Sprintf("- %s, which you wrote %s%s, is held by %s%s: both changes are in it now", path, when, again, who, saidWords(n.Text))
	case NewsMoved:
		return fmt.Sprintf("- %s is held by %s on the branch that you moved to%s: your claim on it ended %s", path, who, again, when)
	case NewsJoined:
		return fmt.Sprintf("- %s, which you hold, was being changed by %s%s, who moved to your branch %s: it is yours, and their changes may be in the way", path, who, again, when)
	case NewsDuplicate:
		return fmt.Sprintf("- %s began on %s %s%s: is that the task that you are at?", who, quoteText(n.Text, maxIntentBytes), when, again)
	case NewsMail:
		// The name is the one that an answer is sent to.
		from, what := quotePerson(n.By.Member), "message"
		if !n.By.Person {
			from += " (an agent)"
		}
		if n.Urgent {
			what = "urgent message"
		}
		line := fmt.Sprintf("- %s from %s, %s%s: ", what, from, when, again)
		text := quoteText(n.Text, maxMessageBytes)
		if strings.HasSuffix(text, ellipsis+`"`) && !strings.HasSuffix(n.Text, ellipsis) {
			text += " (the rest: knoot inbox)"
		}
		return line + text
	case NewsStash:
		return "- the stash belongs to the clone, and others are at work in other worktrees of it" + again + ": what you stash they can pop, and what you pop may be theirs (git stash list says whose branch it is from)"
	case NewsSwept:
		return fmt.Sprintf("- your %s reaches %s, which %s changed %s and did not commit%s; it goes on", quoteText(n.Text, maxSweepBytes), path, who, when, again)
	case NewsLeft:
		return fmt.Sprintf("- %s: %s left uncommitted changes here %s%s", path, who, when, again)
	case NewsOverlap:
		line := fmt.Sprintf("- %s is being changed by %s on %s, too%s", path, who, branchWords(n.Branch), again)
		if n.Text != "" {
			line += ": " + overlapWords(n.Text)
		}
		return line
	case NewsHeld:
		if n.By.Person {
			who += " (a person)"
		}
		return fmt.Sprintf("- %s: %s is at it too (%s, last seen there %s)%s%s; your write goes on", path, who, branchWords(n.Branch), when, again, saidWords(n.Text))
	case NewsNoted:
		return fmt.Sprintf("- %s was written by %s %s%s%s", path, who, when, again, saidWords(n.Text))
	}
	return "- " + path
}

// How the changes of two branches to one file go together, as News.Text of NewsOverlap.
const (
	OverlapMerges    = "merges"
	OverlapConflicts = "conflicts" // " in lines 4-9" may follow, which are lines of whoever is told
	OverlapUnknown   = "unknown"
)

func overlapWords(how string) string {
	if lines, ok := strings.CutPrefix(how, OverlapConflicts); ok {
		return "as they are now, they conflict" + lines
	}
	if how == OverlapMerges {
		return "as they are now, both merge"
	}
	return "they may conflict"
}

// placeWords says where a change is; here is what is said of one in the reader's own files.
func placeWords(n *News, here string) string {
	switch n.Place {
	case Pushed:
		if commit := shortCommit(n.Commit); commit != "" {
			return "pushed, and not in your files yet (commit " + commit + ")"
		}
		return "pushed, and not in your files yet"
	case OtherMachine:
		return "on their machine, not in your files (" + branchWords(n.Branch) + ")"
	case Elsewhere:
		return "only in another worktree so far (" + branchWords(n.Branch) + ")"
	}
	return "in your files now, " + here
}

// byWords says who changed a file, whose command ran when it was changed, or who was refused that.
func byWords(n *News, who string) string {
	if n.Denied {
		return "after knoot refused that to " + who + ","
	}
	if n.Unsure {
		return "while a command of " + who + " ran,"
	}
	return "by " + who
}

// branchWords names a branch by its full ref name.
func branchWords(ref string) string {
	if ref == "" {
		return "no branch"
	}
	return "branch " + quoteName(strings.TrimPrefix(ref, "refs/heads/"), maxBranchBytes)
}

// saidWords follows somebody's name with what they said that they are doing.
func saidWords(text string) string {
	if text == "" {
		return ""
	}
	return " (" + quoteText(text, maxIntentBytes) + ")"
}

func againWords(nth int) string {
	switch nth {
	case 1:
		return ""
	case 2:
		return " (again)"
	}
	return " (the " + ordinal(nth) + " time)"
}

// ordinal is 1st, 2nd, 3rd, 4th, …, 11th, …
func ordinal(n int) string {
	end := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			end = "st"
		case 2:
			end = "nd"
		case 3:
			end = "rd"
		}
	}
	return fmt.Sprint(n, end)
}

// left is how much of a lease is left: "8 minutes", "40 seconds". What has ended is "a moment".
func left(d time.Duration) string {
	switch {
	case d < time.Second:
		return "a moment"
	case d < 2*time.Minute:
		return count(int(d.Round(time.Second)/time.Second), "second")
	}
	return count(int(d.Round(time.Minute)/time.Minute), "minute")
}

// newsNouns say what several pieces of news of a kind are, one and more of them.
var newsNouns = map[NewsKind][2]string{
	NewsFreed:     {"file that you were denied is free now", "files that you were denied are free now"},
	NewsTurn:      {"file that you were denied is kept for you now", "files that you were denied are kept for you now"},
	NewsTaken:     {"file that you held was taken by a person", "files that you held were taken by a person"},
	NewsChanged:   {"file that you read was changed", "files that you read were changed"},
	NewsRemoved:   {"file that you read was removed", "files that you read were removed"},
	NewsCollision: {"file that you created was created by somebody else too", "files that you created were created by somebody else too"},
	NewsUngated:   {"file that you hold was written by somebody else", "files that you hold were written by somebody else"},
	NewsCrossed:   {"file that you wrote is held by somebody else", "files that you wrote are held by somebody else"},
	NewsMoved:     {"claim of yours ended with your change of branch", "claims of yours ended with your change of branch"},
	NewsJoined:    {"file that you hold was being changed by who moved to your branch", "files that you hold were being changed by who moved to your branch"},
	NewsDuplicate: {"session seems to be at your task", "sessions seem to be at your task"},
	NewsMail:      {"message (knoot inbox)", "messages (knoot inbox)"},
	NewsSwept:     {"file with somebody else's changes is reached by your git command", "files with somebody else's changes are reached by your git command"},
	NewsStash:     {"thing to know of the stash", "things to know of the stash"},
	NewsHeld:      {"file has somebody else at it too, and your write goes on", "files have somebody else at them too, and your write goes on"},
	NewsLeft:      {"file has uncommitted changes of somebody else", "files have uncommitted changes of somebody else"},
	NewsOverlap:   {"file is being changed on another branch too", "files are being changed on another branch too"},
	NewsNoted:     {"file was written by somebody else just before", "files were written by somebody else just before"},
}

// manyNewsLine stands for more news than are said one by one: how many of each kind, with the first paths.
func manyNewsLine(all []*News, nth int) string {
	var groups []string
	for _, kind := range newsOrder {
		n := 0
		var paths []string
		for _, each := range all {
			if each.Kind != kind {
				continue
			}
			n++
			if each.Path != "" && len(paths) < 3 {
				paths = append(paths, quotePath(each.Path))
			}
		}
		if n == 0 {
			continue
		}
		group := fmt.Sprintf("%d %s", n, newsNouns[kind][min(n, 2)-1])
		if len(paths) > 0 {
			if n > len(paths) {
				paths = append(paths, fmt.Sprintf("%d more", n-len(paths)))
			}
			group += " (" + strings.Join(paths, ", ") + ")"
		}
		groups = append(groups, group)
	}
	return fmt.Sprintf("- news%s: %s", againWords(nth), strings.Join(groups, "; "))
}
