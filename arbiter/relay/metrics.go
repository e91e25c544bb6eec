package relay

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"knoot.dev/knoot/arbiter/wire"
)

// The figures that /metrics shows, in Prometheus's text format. It is written by hand: the usual library costs each start
// of a program that links it a millisecond, and every command of knoot is this program.

type counter struct{ atomic.Uint64 }

// histogram counts durations by upper bounds.
type histogram struct {
	buckets [len(histogramBounds)]atomic.Uint64
	count   atomic.Uint64
	nanos   atomic.Uint64
}

var histogramBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second,
}

func (h *histogram) observe(d time.Duration) {
	for i, bound := range histogramBounds {
		if d <= bound {
			h.buckets[i].Add(1)
			break
		}
	}
	h.count.Add(1)
	h.nanos.Add(uint64(max(d, 0)))
}

// requestKinds name what is counted apart.
var requestKinds = [...]string{"open", "claim", "release", "append", "roster", "ping", "other"}

const (
	openRequest = iota
	claimRequest
	releaseRequest
	appendRequest
	rosterRequest
	pingRequest
	otherRequest
)

type metrics struct {
	requests   [len(requestKinds)]counter
	faults     [wire.TooLarge + 1]counter // by code
	outcomes   [wire.Lost + 1]counter     // of claims
	events     counter
	accepted   [2]counter // connections, by QUIC and by TCP
	refused    counter    // connections that never said hello
	oldTokens  counter
	listening  atomic.Int64
	syncs      histogram
	claimTimes histogram
	failures   counter // of the log
}

func (m *metrics) fault(code wire.Code) {
	if int(code) < len(m.faults) {
		m.faults[code].Add(1)
	}
}

// gauges are read when somebody asks.
type gauges struct {
	connections, listeners, teams, repositories, claims int
	logBytes                                            int64
	grace                                               time.Duration
}

func (m *metrics) write(w io.Writer, g gauges) {
	family := func(name, kind, help string) { fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind) }
	gauge := func(name, help string, value any) {
		family(name, "gauge", help)
		fmt.Fprintf(w, "%s %v\n", name, value)
	}
	count := func(name, help string, value uint64) {
		family(name, "counter", help)
		fmt.Fprintf(w, "%s %d\n", name, value)
	}
	gauge("knoot_relay_connections", "Devices' connections that said hello.", g.connections)
	gauge("knoot_relay_open_repositories", "Repositories that connections have open, each counted.", g.listeners)
	gauge("knoot_relay_teams", "Rosters that are kept.", g.teams)
	gauge("knoot_relay_repositories", "Repositories that are kept.", g.repositories)
	gauge("knoot_relay_claims", "Claims that live.", g.claims)
	gauge("knoot_relay_log_bytes", "Size of the log's files.", g.logBytes)
	gauge("knoot_relay_grace_seconds", "How long claims are still granted only with a grant.", g.grace.Seconds())
	count("knoot_relay_events_total", "Events that were put in order.", m.events.Load())
	count("knoot_relay_refused_connections_total", "Connections that ended before they said hello.", m.refused.Load())
	count("knoot_relay_old_token_uses_total", "Teams that were let in by an old operator's token.", m.oldTokens.Load())
	count("knoot_relay_log_failures_total", "Times that the log could not be written.", m.failures.Load())
	family("knoot_relay_accepted_connections_total", "counter", "Connections that said hello, by transport.")
	for i, transport := range []string{"quic", "tcp"} {
		fmt.Fprintf(w, "knoot_relay_accepted_connections_total{transport=%q} %d\n", transport, m.accepted[i].Load())
	}
	family("knoot_relay_requests_total", "counter", "Requests, by kind.")
	for i, kind := range requestKinds {
		fmt.Fprintf(w, "knoot_relay_requests_total{kind=%q} %d\n", kind, m.requests[i].Load())
	}
	family("knoot_relay_claims_total", "counter", "Claims that were answered, by outcome.")
	for i, outcome := range []string{"granted", "denied", "refused", "lost"} {
		fmt.Fprintf(w, "knoot_relay_claims_total{outcome=%q} %d\n", outcome, m.outcomes[i+1].Load())
	}
	family("knoot_relay_faults_total", "counter", "Requests and connections that were answered with a fault, by its name.")
	for _, code := range wire.Codes() {
		fmt.Fprintf(w, "knoot_relay_faults_total{fault=%q} %d\n", code, m.faults[code].Load())
	}
	m.syncs.write(w, family, "knoot_relay_sync_seconds", "How long one write of the log took, sync included.")
	m.claimTimes.write(w, family, "knoot_relay_claim_seconds", "How long a claim took here, sync included.")
}

func (h *histogram) write(w io.Writer, family func(name, kind, help string), name, help string) {
	family(name, "histogram", help)
	total := uint64(0)
	for i, bound := range histogramBounds {
		total += h.buckets[i].Load()
		fmt.Fprintf(w, "%s_bucket{le=\"%g\"} %d\n", name, bound.Seconds(), total)
	}
	fmt.Fprintf(w, "%s_bucket{le=\"+Inf\"} %d\n", name, max(total, h.count.Load()))
	fmt.Fprintf(w, "%s_sum %g\n%s_count %d\n", name, time.Duration(h.nanos.Load()).Seconds(), name, max(total, h.count.Load()))
}
