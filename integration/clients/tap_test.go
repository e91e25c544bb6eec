package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// tap stands before a daemon's port and sees what passes.
type tap struct {
	server *httptest.Server
	port   string

	mu      sync.Mutex
	seen    []*exchange   // guarded by mu, as all here
	changed chan struct{} // closed at the next change
}

// exchange is a request and its answer.
type exchange struct {
	method   string // of HTTP
	message  string // the method of its message; "" where it has none
	protocol string // the version that its header says
	status   int    // 0: not answered yet
	stream   bool   // the answer is a stream of events
	bytes    int    // of the answer so far
	ended    bool
}

// newTap stands before an endpoint until the test ends. add are headers that it adds to requests which lack them, as it does the
// endpoint's query. Where a request names the tap as its host or origin it names the daemon behind it.
func newTap(t *testing.T, e *endpoint, add map[string]string) *tap {
	tap := &tap{changed: make(chan struct{})}
	target := &url.URL{Scheme: "http", Host: e.address()}
	at, err := url.Parse(e.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, behind, _ := net.SplitHostPort(target.Host)
	tap.server = httptest.NewUnstartedServer(&httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if r.Out.URL.RawQuery == "" {
				r.Out.URL.RawQuery = at.RawQuery
			}
			r.Out.Host = tap.behind(r.In.Host, behind)
			if origin := r.In.Header.Get("Origin"); origin != "" {
				r.Out.Header.Set("Origin", tap.behind(origin, behind))
			}
			for name, value := range add {
				if r.In.Header.Get(name) == "" {
					r.Out.Header.Set(name, value)
				}
			}
		},
		ModifyResponse: tap.answered,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // as if nobody stood before it
	})
	inner := tap.server.Config.Handler
	tap.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return // the client went away
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		var message struct{ Method string }
		_ = json.Unmarshal(body, &message) // what is none has no method
		x := &exchange{method: req.Method, message: message.Method, protocol: req.Header.Get("Mcp-Protocol-Version")}
		tap.change(func() { tap.seen = append(tap.seen, x) })
		defer tap.change(func() { x.ended = true })
		inner.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), exchangeKey{}, x)))
	})
	tap.server.Start()
	_, tap.port, _ = net.SplitHostPort(tap.address())
	t.Cleanup(func() {
		tap.server.CloseClientConnections()
		tap.server.Close()
	})
	return tap
}

type exchangeKey struct{}

func (tap *tap) address() string { return tap.server.Listener.Addr().String() }

// behind is a host or origin with the port that stands for the daemon's own.
func (tap *tap) behind(text, port string) string {
	if before, is := strings.CutSuffix(text, ":"+tap.port); is {
		return before + ":" + port
	}
	return text
}

// change changes what was seen.
func (tap *tap) change(how func()) {
	tap.mu.Lock()
	defer tap.mu.Unlock()
	how()
	close(tap.changed)
	tap.changed = make(chan struct{})
}

func (tap *tap) answered(resp *http.Response) error {
	x := resp.Request.Context().Value(exchangeKey{}).(*exchange)
	tap.change(func() {
		x.status, x.stream = resp.StatusCode, strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	})
	resp.Body = &counted{resp.Body, tap, x}
	return nil
}

// counted counts what is read of an answer.
type counted struct {
	io.ReadCloser
	tap *tap
	of  *exchange
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.tap.change(func() { c.of.bytes += n })
	return n, err
}

// await waits until an exchange is as it should be, and returns it as it was then; false: ctx ended before.
func (tap *tap) await(ctx context.Context, as func(x exchange) bool) (exchange, bool) {
	for {
		tap.mu.Lock()
		changed := tap.changed
		for _, x := range tap.seen {
			if as(*x) {
				defer tap.mu.Unlock()
				return *x, true
			}
		}
		tap.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return exchange{}, false
		}
	}
}

// all is what was seen.
func (tap *tap) all() (seen []exchange) {
	tap.mu.Lock()
	defer tap.mu.Unlock()
	for _, x := range tap.seen {
		seen = append(seen, *x)
	}
	return seen
}
