package daemon

import (
	"fmt"
	"strings"
	"testing"
)

// teamFacts are n facts such as a team has: paths three deep, a sentence or two.
func teamFacts(n int) []BriefFact {
	facts := make([]BriefFact, n)
	for i := range facts {
		f := fact(fmt.Sprintf("rule-%d", i), fmt.Sprintf("services/pay%d/src/file%d.js", i%40, i), strings.Repeat("rounding happens once, at the invoice total. ", 5))
		f.Stale = i%7 == 0
		if f.Stale {
			f.Reason = "ash changed " + f.Paths[0] + " 2 hours ago (commit 4be1c2d), 31 of 210 lines"
		}
		facts[i] = f
	}
	return facts
}

func benchCompose(b *testing.B, in *BriefInput, empty bool) {
	if got := Compose(in).Text == ""; got != empty {
		b.Fatalf("empty: %v", got)
	}
	b.ReportAllocs()
	for b.Loop() {
		Compose(in)
	}
}

// Budget, with 2,000 facts: 1 ms for each; 2 ms for a prompt of 64 KiB, 3 ms for the last, where all of them are relevant.
func BenchmarkCompose(b *testing.B) {
	facts := teamFacts(2000)
	var touched []string // 100 files of the session, half of them with a fact
	for i := range 100 {
		touched = append(touched, fmt.Sprintf("services/pay%d/src/file%d.js", i%40, i+1950))
	}
	instructions := NewInstructions(strings.Repeat("All money is integer cents. Use tabs, never spaces.\n", 400))
	b.Run("tool call", func(b *testing.B) {
		in := input(EventPreTool, facts...)
		in.Call, in.Instructions = []string{"services/pay3/src/file3.js"}, instructions
		benchCompose(b, in, false)
	})
	b.Run("prompt", func(b *testing.B) {
		in := input(EventPrompt, facts...)
		in.Session, in.Turn, in.Instructions = touched, touched[:10], instructions
		in.Prompt = "Please make the rounding in services/pay3/src/file3.js and file7.js the same as on the invoice."
		benchCompose(b, in, false)
	})
	b.Run("prompt of 64 KiB", func(b *testing.B) {
		in := input(EventPrompt, facts...)
		in.Session, in.Turn, in.Instructions = touched, touched[:10], instructions
		in.Prompt = longPrompt
		benchCompose(b, in, false)
	})
	b.Run("quiet prompt", func(b *testing.B) {
		in := input(EventPrompt, facts...)
		in.Session, in.Turn, in.Instructions = touched, touched[:10], instructions
		for range 10 {
			in.Turn = touched
			tell(in)
		}
		benchCompose(b, in, true)
	})
	b.Run("start", func(b *testing.B) {
		in := input(EventSessionStart, facts...)
		for i := range 50 {
			in.Facts = append(in.Facts, fact(fmt.Sprintf("house-%d", i), "", "tabs"))
		}
		benchCompose(b, in, false)
	})
	b.Run("all facts of one directory", func(b *testing.B) {
		in := input(EventPrompt, facts...)
		in.Turn, in.Instructions = []string{"services"}, instructions
		benchCompose(b, in, false)
	})
}

var longPrompt = func() string {
	var b strings.Builder
	for i := 0; b.Len() < 64<<10; i++ {
		fmt.Fprintf(&b, "the build of services/pay%d/src/file%d.js:%d failed at step %x, see invoice-%d for the rounding; ", i%50, i, i, i*7919, i)
	}
	return b.String()[:64<<10]
}()

// Budget: 1 ms for 64 KiB.
func BenchmarkReadPrompt(b *testing.B) {
	b.SetBytes(int64(len(longPrompt)))
	b.ReportAllocs()
	for b.Loop() {
		readPrompt(longPrompt, "/home/dev/app")
	}
}
