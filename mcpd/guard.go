package mcpd

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"log"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// quiet is for what http says of clients: they send what they like.
var quiet = log.New(io.Discard, "", 0)

const (
	// refusalEvery is how often one reason of a refusal is logged: whoever is refused may come back as often as they like.
	refusalEvery = time.Minute
	// tooMany is why a connection is closed at once.
	tooMany = "there are too many connections"
	// contentPolicy is for a browser that is led to show an answer: what agents wrote is in it.
	contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
		"font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)

// guard lets requests through that come from this machine and from no web page but this server's own. address is the host and
// port that it listens on.
func (s *Server) guard(address string, next http.Handler) http.Handler {
	_, port, _ := net.SplitHostPort(address)
	hosts := []string{address, net.JoinHostPort("localhost", port)}
	origins := []string{"http://" + hosts[0], "http://" + hosts[1]}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Content-Security-Policy", contentPolicy)
		origin, sent := req.Header["Origin"]
		site := req.Header.Get("Sec-Fetch-Site")
		from, err := netip.ParseAddrPort(req.RemoteAddr)
		switch {
		case err != nil || !from.Addr().Unmap().IsLoopback():
			s.refuse(w, req, http.StatusForbidden, "this is for this machine alone")
		case !slices.Contains(hosts, req.Host):
			// A page whose name was made to lead to 127.0.0.1 sends its own name here.
			s.refuse(w, req, http.StatusForbidden, "the Host is not this server's")
		case sent && (len(origin) != 1 || !slices.Contains(origins, origin[0])):
			s.refuse(w, req, http.StatusForbidden, "the Origin is not this server's")
		case site != "" && site != "same-origin" && site != "none":
			// "same-site" is every other port of this machine.
			s.refuse(w, req, http.StatusForbidden, "a web page of another origin sent this")
		default:
			s.readBody(w, req, next)
		}
	})
}

// readBody reads a request's body, which may neither be large nor slow, and has the answer written in a bounded time.
func (s *Server) readBody(w http.ResponseWriter, req *http.Request, next http.Handler) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(answerTime))
	if req.Method != http.MethodPost {
		if req.ContentLength != 0 {
			s.refuse(w, req, http.StatusBadRequest, "only a POST has a body")
			return
		}
		next.ServeHTTP(w, req)
		return
	}
	if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		s.refuse(w, req, http.StatusUnsupportedMediaType, "the Content-Type is to be application/json")
		return
	}
	_ = control.SetReadDeadline(time.Now().Add(bodyTime))
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		s.refuse(w, req, http.StatusRequestEntityTooLarge, "the body is too large")
		return
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.refuse(w, req, http.StatusRequestTimeout, "the body came too slowly")
		return
	case err != nil:
		s.refuse(w, req, http.StatusBadRequest, "the body cannot be read")
		return
	}
	_ = control.SetReadDeadline(time.Time{})
	req.Body = io.NopCloser(bytes.NewReader(body))
	req.ContentLength = int64(len(body))
	next.ServeHTTP(w, req)
}

// refuse answers that a request is not served, and why, and logs it: without the address's query or any header, since a secret may
// be in them.
func (s *Server) refuse(w http.ResponseWriter, req *http.Request, status int, why string) {
	s.logRefusal(why, "status", status, "method", req.Method, "path", cut(req.URL.Path, 100))
	w.Header().Set("Connection", "close") // whoever is refused keeps no connection
	http.Error(w, why, status)
}

// logRefusal logs that something was refused, with attributes, unless the same reason was logged lately.
func (s *Server) logRefusal(why string, attributes ...any) {
	now := s.host.Now()
	s.mu.Lock()
	last, was := s.refusals[why]
	news := !was || now.Sub(last) >= refusalEvery
	if news {
		s.refusals[why] = now
	}
	s.mu.Unlock()
	if news {
		s.host.Log().Warn("a request was refused", append([]any{"why", why}, attributes...)...)
	}
}

// bearer is the secret that a request carries; "": none.
func bearer(req *http.Request) string {
	kind, secret, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// same compares secrets in a time that says nothing about them. No secret is "".
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1 && a != ""
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// slots count connections.
type slots chan struct{}

func newSlots(n int) slots { return make(slots, n) }

// boundedListener closes connections at once that are too many.
type boundedListener struct {
	net.Listener
	free slots
	full func() // is told of each that is closed
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &boundedConn{Conn: conn, free: l.free}, nil
		default:
			_ = conn.Close()
			l.full()
		}
	}
}

type boundedConn struct {
	net.Conn
	free slots
	once sync.Once
}

func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.free })
	return err
}
