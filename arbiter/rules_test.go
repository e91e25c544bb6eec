package arbiter

import "testing"

// Each scenario is a rule of claims, with the sentence that it comes from as its name.
var rules = []struct{ name, script string }{
	{"a write claims its file for 10 minutes; same branch, other session: denied", `
		sam main w1
		ash main w2
		0:00 sam claims src/a.go      => sam has src/a.go until 10:00
		1:00 ash claims src/a.go      => ash denied src/a.go by sam until 10:00
		1:00 ash blocked? src/a.go    => sam since 0:00 until 10:00
		1:00 ash claims src/b.go      => ash has src/b.go until 11:00
		1:30 sam writes src/a.go      => sam wrote src/a.go until 11:30
		2:00 ash blocked? src/a.go    => sam since 0:00 until 11:30, wrote at 1:30
	`},
	{"any hook of the session renews it", `
		sam main w1
		ash main w2
		0:00 sam claims a             => sam has a until 10:00
		3:00 sam hooks                => sam keeps all until 13:00
		12:59 ash blocked? a          => sam since 0:00 until 13:00
		13:00 ash blocked? a          => nothing
		13:00 sam hooks               => sam lost a (expired)
		13:00 sam hooks               => nothing
	`},
	{"an open call renews what it needs", `
		sam main w1
		0:00 sam claims a b           => sam has a until 10:00; sam has b until 10:00
		9:00 sam hooks a              => sam keeps one until 19:00
		10:00 time                    => sam lost b (expired)
	`},
	{"a denial by a hub's holder enters the queue, on whatever branch the worktree is", `
		sam main w1
		ash dev w1
		0:00 sam claims a!            => sam has a, a hub, until 2:00
		0:10 ash claims a             => ash denied a, a hub, by sam until 2:00
	`},
	{"a write past a claim takes nothing from those that were gated", `
		sam main w1
		ash main w2
		bo main w3
		0:00 sam claims a             => sam has a until 10:00
		0:00 sam writes a             => sam wrote a until 10:00
		0:01 sam stops                => sam lost a (stop)
		0:02 sam writes a             => sam wrote a unclaimed
		1:00 ash claims a             => ash has a until 11:00
		1:00 ash writes a             => ash wrote a until 11:00
		1:01 ash stops                => ash lost a (stop)
		2:00 bo claims a              => bo has a until 12:00
		2:00 bo writes a              => bo wrote a, a hub, until 4:00
	`},
	{"it ends when it runs out, with no event needed", `
		sam main w1
		ash main w2
		0:00 sam claims a             => sam has a until 10:00
		9:59 ash claims a             => ash denied a by sam until 10:00
		10:00 ash blocked? a          => nothing
		10:00 ash claims a            => sam lost a (expired); ash: a is free; ash has a until 20:00
	`},
	{"PathFreed where somebody waits, and only there", `
		sam main w1
		ash main w2
		0:00 sam claims a b           => sam has a until 10:00; sam has b until 10:00
		1:00 ash claims a             => ash denied a by sam until 10:00
		1:00 sam waiting? a           => ash
		2:00 sam stops                => sam lost a (stop); sam lost b (stop); ash: a is free
		2:00 sam waiting? a           => nothing
		2:00 ash claims a             => ash has a until 12:00
	`},
	{"everybody who was denied is told, first come first; one by one as others hold it", `
		sam main w1
		ash main w2
		bo main w3
		0:00 sam claims a             => sam has a until 10:00
		1:00 bo claims a              => bo denied a by sam until 10:00
		1:30 ash claims a             => ash denied a by sam until 10:00
		2:00 ash claims a             => ash denied a by sam until 10:00
		2:00 sam waiting? a           => bo; ash
		3:00 sam releases a           => sam lost a (released); bo: a is free; ash: a is free
	`},
	{"two sessions of one person are two sessions", `
		sam main w1 of sam
		sam2 main w2 of sam
		0:00 sam claims a             => sam has a until 10:00
		0:00 sam2 claims a            => sam2 denied a by sam until 10:00
	`},
	{"same worktree: denied whatever the branch", `
		sam main w1
		ash dev w1
		0:00 sam claims a             => sam has a until 10:00
		0:00 ash claims a             => ash denied a by sam until 10:00
	`},
	{"other branch in another worktree: granted, overlap recorded", `
		sam main w1
		ash dev w2
		bo feature w3
		0:00 sam claims a             => sam has a until 10:00
		1:00 ash claims a             => ash has a until 11:00; ash overlaps sam in a
		2:00 bo claims a              => bo has a until 12:00; bo overlaps sam in a; bo overlaps ash in a
		2:00 sam elsewhere? a         => ash; bo
		2:00 sam blocked? a           => nothing
	`},
	{"re-entrant: the holder's further writes, its subagents' too, take nothing new", `
		sam main w1
		0:00 sam claims a             => sam has a until 10:00
		1:00 sam claims a             => sam keeps one until 11:00
		2:00 sam claims a b           => sam keeps one until 12:00; sam has b until 12:00
	`},
	{"a batch is granted whole or denied whole", `
		sam main w1
		ash main w2
		0:00 sam claims b             => sam has b until 10:00
		0:00 ash claims a b c         => ash denied b by sam until 10:00
		0:00 sam blocked? a           => nothing
		0:00 sam claims a a           => sam has a until 10:00
		1:00 ash claims c b a         => ash denied b by sam until 10:00; ash denied a by sam until 10:00
	`},
	{"a directory claim covers what is below, and what is above covers it", `
		sam main w1
		ash main w2
		0:00 sam claims src/lib/      => sam has src/lib/ until 10:00
		0:00 ash claims src/lib/a/b.go => ash denied src/lib/a/b.go by sam until 10:00
		0:00 ash claims src/lib       => ash denied src/lib by sam until 10:00
		0:00 ash claims src/          => ash denied src/ by sam until 10:00
		0:00 ash claims src/lib/a/    => ash denied src/lib/a/ by sam until 10:00
		0:00 ash claims src/library.go src/lib2/ => ash has src/library.go until 10:00; ash has src/lib2/ until 10:00
		0:00 ash claims src           => ash has src until 10:00
		1:00 sam releases src/lib/ (called) => sam lost src/lib/ (called); ash: src/lib/a/b.go is free; ash: src/lib is free; ash: src/ is free; ash: src/lib/a/ is free
	`},
	{"a file held below denies a directory, the root's too", `
		sam main w1
		ash main w2
		0:00 sam claims src/a.go      => sam has src/a.go until 10:00
		0:00 ash claims src/          => ash denied src/ by sam until 10:00
		0:00 ash claims /             => ash denied / by sam until 10:00
		0:00 sam claims src/          => sam has src/ until 10:00
	`},
	{"a claim that a failed write took ends, one that an earlier write confirmed stays; a directory's ends with its call", `
		sam main w1
		0:00 sam claims a b d/        => sam has a until 10:00; sam has b until 10:00; sam has d/ until 10:00
		0:10 sam writes a d/x         => sam wrote a until 10:10; sam wrote d/x until 10:10
		0:20 sam releases a b d/ (failed) => sam lost b (failed); sam lost d/ (failed)
		0:30 sam releases a (called)  => nothing
		0:40 sam releases a           => sam lost a (released)
	`},
	{"Stop ends claims, but those of running subagents", `
		sam main w1
		ash main w2
		0:00 sam claims a b           => sam has a until 10:00; sam has b until 10:00
		1:00 sam stops b              => sam lost a (stop)
		1:00 ash claims b             => ash denied b by sam until 10:00
		2:00 sam stops                => sam lost b (stop); ash: b is free
	`},
	{"what is left denies nobody and is told until clean, written again, or 12 hours", `
		sam main w1
		ash main w2
		bo dev w1
		cy dev w3
		0:00 sam claims a b c         => sam has a until 10:00; sam has b until 10:00; sam has c until 10:00
		1:00 sam stops                => sam lost a (stop); sam lost b (stop); sam lost c (stop)
		1:01 sam leaves a b c         => sam left a; sam left b; sam left c
		2:00 ash left? a              => sam at 1:01
		2:00 bo left? a               => sam at 1:01
		2:00 cy left? a               => nothing
		2:00 sam left? a              => nothing
		2:00 ash claims a             => ash has a until 12:00
		2:00 ash writes a             => ash wrote a until 12:00
		2:00 bo left? a               => sam at 1:01
		3:00 sam writes b             => sam wrote b unclaimed
		3:00 ash left? b              => nothing
		3:00 sam cleans a             => sam lost a (released)
		3:00 bo left? a               => nothing
		721:00 ash left? c            => sam at 1:01
		721:01 ash left? c            => nothing
	`},
	{"what a live claim covered can be left", `
		sam main w1
		ash main w2
		0:00 sam claims a             => sam has a until 10:00
		0:30 sam leaves a             => sam left a
		0:30 sam blocked? a           => nothing
		0:40 sam leaves a             => sam left a
		0:50 ash left? a              => sam at 0:40
	`},
	{"the session's end ends all it holds and waits for", `
		sam main w1
		ash main w2
		0:00 sam claims a             => sam has a until 10:00
		0:00 ash claims b             => ash has b until 10:00
		0:00 sam claims b             => sam denied b by ash until 10:00
		0:00 ash claims a             => ash denied a by sam until 10:00
		1:00 sam ends                 => sam lost a (end); sam ended (end); ash: a is free
		1:00 ash waiting? b           => nothing
		1:00 sam ends                 => nothing
		2:00 ash dies                 => ash lost b (gone); ash ended (gone)
	`},
	{"the leases of a removed device end", `
		sam main w1
		ash main w2
		0:00 sam claims a             => sam has a until 10:00
		0:00 ash claims a             => ash denied a by sam until 10:00
		1:00 sam removed              => the team changed; ash: a is free
	`},
	{"HEAD moved: claims go along; where another holds the path there, the mover's ends", `
		sam main w1
		ash dev w2
		bo main w3
		0:00 sam claims a b           => sam has a until 10:00; sam has b until 10:00
		0:00 ash claims b             => ash has b until 10:00; ash overlaps sam in b
		1:00 sam moves dev            => sam lost b (moved, ash); sam moved from main to dev
		1:00 ash claims a             => ash denied a by sam until 10:00
		1:00 bo claims a              => bo has a until 11:00; bo overlaps sam in a
		1:00 sam moves dev            => nothing
		1:00 sam claims b             => sam denied b by ash until 10:00
		2:00 sam moves main           => sam lost a (moved, bo); sam moved from dev to main; ash: a is free; sam: b is free
	`},
	{"only the claims in that worktree move", `
		sam main w1
		sam2 main w2
		0:00 sam claims a             => sam has a until 10:00
		0:00 sam2 claims b            => sam2 has b until 10:00
		1:00 sam2 moves dev           => sam2 moved from main to dev
		1:00 sam2 claims a            => sam2 has a until 11:00; sam2 overlaps sam in a
	`},
	{"a file that three sessions wrote on one branch within 30 minutes is a hub, for 2 minutes", `
		sam main w1
		ash main w2
		bo main w3
		cy dev w4
		0:00 sam claims a             => sam has a until 10:00
		0:00 sam writes a             => sam wrote a until 10:00
		0:00 sam stops                => sam lost a (stop)
		1:00 cy claims a              => cy has a until 11:00
		1:00 cy writes a              => cy wrote a until 11:00
		2:00 ash claims a             => ash has a until 12:00; ash overlaps cy in a
		2:00 ash writes a             => ash wrote a until 12:00
		2:00 ash stops                => ash lost a (stop)
		2:00 bo queue? a              => no hub, lease 10
		3:00 bo claims a              => bo has a until 13:00; bo overlaps cy in a
		3:00 bo queue? a              => no hub, lease 10
		4:00 bo writes a              => bo wrote a, a hub, until 6:00
		4:00 bo queue? a              => lease 2
		4:00 cy queue? a              => no hub, lease 10
		5:00 bo hooks                 => nothing
		5:00 bo claims a              => nothing
		5:30 bo writes a              => bo wrote a, a hub, until 7:30
		6:00 sam claims a             => sam denied a, a hub, by bo until 7:30
		7:30 time                     => bo lost a (expired); sam: your turn at a until 9:30
	`},
	{"it stops being a hub when fewer than three wrote it in 30 minutes and nobody queues", `
		sam main w1
		ash main w2
		bo main w3
		0:00 sam claims a             => sam has a until 10:00
		0:00 sam writes a             => sam wrote a until 10:00
		0:01 sam stops                => sam lost a (stop)
		1:00 ash claims a             => ash has a until 11:00
		1:00 ash writes a             => ash wrote a until 11:00
		1:01 ash stops                => ash lost a (stop)
		2:00 bo claims a              => bo has a until 12:00
		2:00 bo writes a              => bo wrote a, a hub, until 4:00
		29:59 sam queue? a            => lease 2
		30:00 sam queue? a            => no hub, lease 10
	`},
	{"writes that nothing gated make no hub", `
		sam main w1
		ash main w2
		bo main w3
		0:00 sam writes a             => sam wrote a unclaimed
		0:00 ash writes a             => ash wrote a unclaimed
		0:00 bo writes a              => bo wrote a unclaimed
		0:00 sam queue? a             => no hub, lease 10
		0:00 sam written? a           => ash wrote at 0:00; bo wrote at 0:00
	`},
	{"the queue is first come first served; a denial enters once; others are denied while it is somebody's turn", `
		sam main w1
		ash main w2
		bo main w3
		cy main w4
		0:00 sam claims a!            => sam has a, a hub, until 2:00
		0:10 ash claims a!            => ash denied a, a hub, by sam until 2:00
		0:20 bo claims a!             => bo denied a, a hub, by sam until 2:00
		0:30 ash claims a!            => ash denied a, a hub, by sam until 2:00
		0:30 cy queue? a              => 1 ash; 2 bo; lease 2
		1:00 sam stops                => sam lost a (stop); ash: your turn at a until 3:00
		1:00 cy queue? a              => 1 ash; 2 bo; lease 2; turn of ash until 3:00
		1:10 bo claims a              => bo denied a, a hub, by ash until 3:00
		1:20 cy claims a              => cy denied a, a hub, by ash until 3:00
		1:20 cy blocked? a            => turn of ash until 3:00
		1:20 sam claims a             => sam denied a, a hub, by ash until 3:00
		1:30 ash claims a             => ash has a, a hub, until 3:30
		1:30 cy queue? a              => 1 bo; 2 cy; 3 sam; lease 2
		3:30 time                     => ash lost a (expired); bo: your turn at a until 5:30
	`},
	{"the turn is reserved from the lease's end, before PathFreed says so", `
		sam main w1
		ash main w2
		bo main w3
		0:00 sam claims a!            => sam has a, a hub, until 2:00
		0:10 ash claims a!            => ash denied a, a hub, by sam until 2:00
		2:00 bo blocked? a            => turn of ash until -
		2:00 ash blocked? a           => nothing
		2:00 ash claims a             => sam lost a (expired); ash: your turn at a until 4:00; ash has a, a hub, until 4:00
	`},
	{"who does nothing in 2 minutes goes behind the next one, once; the second time leaves", `
		sam main w1
		ash main w2
		bo main w3
		cy main w4
		0:00 sam claims a!            => sam has a, a hub, until 2:00
		0:10 ash claims a!            => ash denied a, a hub, by sam until 2:00
		0:20 bo claims a!             => bo denied a, a hub, by sam until 2:00
		0:30 cy claims a!             => cy denied a, a hub, by sam until 2:00
		1:00 sam releases a           => sam lost a (released); ash: your turn at a until 3:00
		2:59 time                     => nothing
		3:00 time                     => ash passes a to bo until 5:00
		3:00 sam queue? a             => 1 bo; 2 ash; 3 cy; lease 2; turn of bo until 5:00
		3:01 ash claims a             => ash denied a, a hub, by bo until 5:00
		4:00 bo claims a              => bo has a, a hub, until 6:00
		4:30 bo releases a            => bo lost a (released); ash: your turn at a until 6:30
		6:30 time                     => ash passes a to cy until 8:30
		6:30 sam queue? a             => 1 cy; lease 2; turn of cy until 8:30
		8:30 time                     => cy passes a to cy until 10:30
		10:30 time                    => cy out of a's queue, nobody next
		10:30 sam claims a            => sam has a until 20:30
	`},
	{"who is idle lets the turn pass at once", `
		sam main w1
		ash main w2
		bo main w3
		0:00 sam claims a!            => sam has a, a hub, until 2:00
		0:10 ash claims a!            => ash denied a, a hub, by sam until 2:00
		0:20 bo claims a!             => bo denied a, a hub, by sam until 2:00
		0:30 ash stops                => nothing
		1:00 sam releases a           => sam lost a (released); ash: your turn at a until 3:00
		1:00 bo idles                 => nothing
		1:00 ash idles                => ash passes a to bo until 3:00
		1:30 bo stops                 => bo passes a to ash until 3:30
		1:30 ash idles                => ash passes a to bo until 3:30
		1:30 sam queue? a             => 1 bo; lease 2; turn of bo until 3:30
		1:30 bo idles                 => bo out of a's queue, nobody next
	`},
	{"leaving the queue: session's end, and the next one's turn has its own 2 minutes", `
		sam main w1
		ash main w2
		bo main w3
		0:00 sam claims a!            => sam has a, a hub, until 2:00
		0:10 ash claims a!            => ash denied a, a hub, by sam until 2:00
		0:20 bo claims a!             => bo denied a, a hub, by sam until 2:00
		1:00 sam releases a           => sam lost a (released); ash: your turn at a until 3:00
		2:00 ash ends                 => ash ended (end); bo: your turn at a until 4:00
	`},
	{"leaving the queue: 12 hours", `
		sam main w1
		ash main w2
		0:00 sam claims a!            => sam has a, a hub, until 2:00
		0:10 ash claims a!            => ash denied a, a hub, by sam until 2:00
		0:10 ash waiting? a           => ash
		720:10 ash waiting? a         => nothing
	`},
	{"a tree is denied while a hub below is reserved", `
		sam main w1
		ash main w2
		bo main w3
		0:00 sam claims d/a!          => sam has d/a, a hub, until 2:00
		0:10 ash claims d/a!          => ash denied d/a, a hub, by sam until 2:00
		1:00 sam releases d/a         => sam lost d/a (released); ash: your turn at d/a until 3:00
		1:10 bo claims d/             => bo denied d/ by ash until 3:00
		2:00 ash ends                 => ash ended (end); bo: d/ is free
	`},
	{"whoever moves to another branch is out of the queue's line and is told when the file is free there", `
		sam main w1
		ash main w2
		bo dev w3
		0:00 sam claims a!            => sam has a, a hub, until 2:00
		0:10 ash claims a!            => ash denied a, a hub, by sam until 2:00
		0:20 bo claims a              => bo has a until 10:20; bo overlaps sam in a
		0:30 ash moves dev            => ash moved from main to dev
		0:30 sam queue? a             => no hub, lease 10
		0:40 bo stops                 => bo lost a (stop); ash: a is free
	`},
	{"a person's presence claims what they save and denies other agents", `
		mia main w1 person of mia
		sam main w2 of sam
		0:00 mia writes a             => mia has a until 10:00; mia wrote a until 10:00
		1:00 mia writes a             => mia wrote a until 11:00
		1:00 sam claims a             => sam denied a by mia until 11:00
	`},
	{"it never denies the person's own sessions: they get a note, and a claim beside it", `
		mia main w1 person of mia
		sam main w1 of mia
		bo main w2 of bo
		0:00 mia writes a             => mia has a until 10:00; mia wrote a until 10:00
		1:00 sam person? a            => mia
		1:00 sam blocked? a           => nothing
		1:00 bo person? a             => nothing
		1:00 sam claims a             => sam has a until 11:00
		2:00 mia writes a             => mia wrote a until 12:00
		3:00 bo claims a              => bo denied a by mia until 12:00
	`},
	{"a file that an agent holds is not taken by saving it", `
		mia main w1 person of mia
		sam main w1 of mia
		bo main w2 of bo
		0:00 sam claims a             => sam has a until 10:00
		0:00 bo claims b              => bo has b until 10:00
		1:00 mia writes a b           => mia wrote a that sam holds; mia wrote b that bo holds
		1:00 bo written? a            => mia wrote at 1:00
	`},
	{"a person does not queue, and takes no turn by being in one", `
		mia main w1 person of mia
		sam main w2
		ash main w3
		0:00 sam claims a!            => sam has a, a hub, until 2:00
		0:10 ash claims a!            => ash denied a, a hub, by sam until 2:00
		1:00 sam releases a           => sam lost a (released); ash: your turn at a until 3:00
		1:30 mia writes a             => mia has a, a hub, until 3:30; mia wrote a, a hub, until 3:30
		1:40 ash claims a             => ash denied a, a hub, by mia until 3:30
		3:30 time                     => mia lost a (expired); ash: your turn at a until 5:30
	`},
	{"take gives the file to the person's presence for one lease, from any session", `
		mia main w1 person of mia
		sam main w1 of mia
		bo main w2 of bo
		0:00 sam claims a             => sam has a until 10:00
		0:00 bo claims d/             => bo has d/ until 10:00
		1:00 mia takes a d/x          => sam lost a (taken, mia); mia has a until 11:00; bo lost d/ (taken, mia); mia has d/x until 11:00
		1:00 bo claims d/x            => bo denied d/x by mia until 11:00
		2:00 mia takes a              => mia keeps one until 12:00
		2:00 sam takes d/x            => nothing
	`},
	{"mode note: kept if granted; if refused nobody waits, and the write is ungated", `
		sam main w1
		ash main w2
		0:00 sam claims note a        => sam has a until 10:00
		1:00 ash claims note a        => nothing
		1:00 ash waiting? a           => nothing
		1:01 ash writes a             => ash wrote a that sam holds
		1:02 sam written? a           => ash wrote at 1:01
	`},
	{"asked for again after a gap: what is refused is released by the relay's order", `
		sam main w1
		ash main w2
		0:00 sam claims a             => sam has a until 10:00
		1:00 ash claims late a        => ash lost a (relay, sam)
		1:00 ash waiting? a           => nothing
		1:00 ash claims late b        => ash has b until 11:00
	`},
	{"what was written by others, deletions too, for 30 minutes", `
		sam main w1
		ash main w2
		0:00 sam claims a             => sam has a until 10:00
		1:00 sam writes a             => sam wrote a until 11:00
		2:00 sam removes a            => sam removed a until 12:00
		3:00 ash written? a           => sam removed at 2:00
		3:00 sam written? a           => nothing
		31:59 ash written? a          => sam removed at 2:00
		32:00 ash written? a          => nothing
	`},
	{"who has a wait keeps the place when the file turns into a hub by listing", `
		sam main w1
		ash main w2
		bo main w3
		0:00 sam claims a             => sam has a until 10:00
		0:10 ash claims a             => ash denied a by sam until 10:00
		0:20 bo claims a!             => bo denied a, a hub, by sam until 10:00
		0:30 ash claims a!            => ash denied a, a hub, by sam until 10:00
		0:30 sam queue? a             => 1 bo; 2 ash; lease 2
		1:00 sam writes a             => sam wrote a, a hub, until 3:00
		1:00 sam releases a           => sam lost a (released); bo: your turn at a until 3:00
	`},
}

func TestRules(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			play(t, r.script)
		})
	}
}
