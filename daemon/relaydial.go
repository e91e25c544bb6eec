package daemon

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/daemon/socket"
)

const (
	// tcpAfter is how long QUIC is tried alone: where a network drops UDP nothing says so.
	tcpAfter = 300 * time.Millisecond
	// Reconnects: at once, then after reconnectFirst, doubling up to reconnectMost, and up to reconnectLong once it has lasted
	// reconnectPatience.
	reconnectFirst    = 250 * time.Millisecond
	reconnectMost     = 5 * time.Second
	reconnectLong     = time.Minute
	reconnectPatience = 10 * time.Minute
)

// relayAddress is where a relay is, and how it is known.
type relayAddress struct {
	address string   // host and port
	pin     wire.Pin // zero: by a public authority's certificate
}

// dialer connects to one relay. One goroutine uses it.
type dialer struct {
	at   relayAddress
	tcp  map[string]bool // by network: TCP was there first, and not QUIC
	dial map[string]func(context.Context, string, *tls.Config, string) (wire.Conn, *wire.Welcome, error)
}

func newDialer(at relayAddress) *dialer {
	return &dialer{at: at, tcp: map[string]bool{}, dial: map[string]func(context.Context, string, *tls.Config, string) (wire.Conn, *wire.Welcome, error){
		"quic": wire.DialQUIC, "tcp": wire.DialTCP}}
}

// connect tries both transports, the one that was first on this network first, the other one tcpAfter later or when the first has
// failed.
func (d *dialer) connect(ctx context.Context, key ed25519.PrivateKey) (wire.Conn, *wire.Welcome, error) {
	certificate, err := wire.Certificate(key)
	if err != nil {
		return nil, nil, err
	}
	host, _, err := net.SplitHostPort(d.at.address)
	if err != nil {
		return nil, nil, err
	}
	var pin *wire.Pin
	if d.at.pin != (wire.Pin{}) {
		pin = &d.at.pin
	}
	config := wire.ClientTLS(certificate, pin, host)
	network := networkTo(d.at.address)
	order := []string{"quic", "tcp"}
	if d.tcp[network] {
		order = []string{"tcp", "quic"}
	}
	type outcome struct {
		conn    wire.Conn
		welcome *wire.Welcome
		err     error
		how     string
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := make(chan outcome)
	running := 0
	start := func(how string) {
		running++
		go func() {
			conn, welcome, err := d.dial[how](ctx, d.at.address, config, "knoot "+socket.Version)
			outcomes <- outcome{conn, welcome, err, how}
		}()
	}
	start(order[0])
	next, after := order[1], tcpAfter // what is begun when the timer ends; "": nothing
	tried := false                    // order[1] was
	timer := time.NewTimer(after)
	defer timer.Stop()
	var won outcome
	errs := map[string]error{}
	for running > 0 {
		select {
		case <-timer.C:
			if next != "" && won.conn == nil {
				start(next)
				next, tried = "", true
			}
		case o := <-outcomes:
			running--
			switch {
			case o.err != nil:
				errs[o.how] = o.err
				if won.conn != nil || ctx.Err() != nil {
					break
				}
				if !tried {
					start(order[1])
					tried = true
				}
				if running > 0 {
					// A relay that begins just now refuses TCP for a moment, and where UDP is dropped QUIC says nothing for long.
					next, after = o.how, 2*after
					timer.Reset(after)
				}
			case won.conn != nil:
				o.conn.Close(0, "")
			default:
				won = o
				cancel() // the other one
			}
		}
	}
	if won.conn == nil {
		var all []error
		for _, how := range order {
			if err := errs[how]; err != nil {
				all = append(all, err)
			}
		}
		return nil, nil, inOne(all)
	}
	d.tcp[network] = won.how == "tcp"
	return won.conn, won.welcome, nil
}

// inOne makes one sentence of what went wrong with each transport; what is the same is said once.
func inOne(errs []error) error {
	var texts []string
	for _, err := range errs {
		if text := err.Error(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return errors.New(strings.Join(texts, "; "))
}

// networkTo names the network by which an address is reached, as far as this machine's own address there does; "" for none.
// Nothing is sent.
func networkTo(address string) string {
	probe, err := net.Dial("udp", address)
	if err != nil {
		return ""
	}
	defer probe.Close()
	host, _, _ := net.SplitHostPort(probe.LocalAddr().String())
	return host
}

// pauseBefore is how long to wait before the nth try to connect again, from 0, when the connection has been gone for so long.
// chance is in [0, 1).
func pauseBefore(nth int, gone time.Duration, chance float64) time.Duration {
	if nth == 0 {
		return 0
	}
	most := reconnectMost
	if gone >= reconnectPatience {
		most = reconnectLong
	}
	pause := most
	if nth < 20 {
		pause = min(reconnectFirst<<(nth-1), most)
	}
	return time.Duration(float64(pause) * (0.75 + chance/2))
}

// retries says when to try again what is to last.
type retries struct {
	nth  int       // of the next try
	gone time.Time // since when it has not lasted
}

func newRetries() *retries { return &retries{gone: time.Now()} }

// pause is how long to wait before the next try.
func (t *retries) pause() time.Duration {
	return pauseBefore(t.nth, time.Since(t.gone), rand.Float64())
}

// ended takes note that a try has come to its end, after it had lasted so long; 0: it failed.
func (t *retries) ended(lasted time.Duration) {
	if t.nth++; lasted > reconnectMost {
		*t = *newRetries()
	}
}
