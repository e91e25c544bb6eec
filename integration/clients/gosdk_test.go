package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// goSDK is the client of the SDK for Go, in both protocols.
func goSDK(t testing.TB) (both []client) {
	modules, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`github\.com/modelcontextprotocol/go-sdk v(\S+)`).FindSubmatch(modules)
	if named == nil {
		t.Fatal("go.mod does not name the SDK")
	}
	for _, protocol := range []string{"2025-11-25", sessionless} {
		// In the protocol without sessions it listens for what a server says that it changes, and knoot changes nothing.
		both = append(both, client{name: "go-sdk", version: string(named[1]), protocol: protocol, open: openGoSDK(protocol), silent: protocol == sessionless})
	}
	return both
}

// sends adds headers to requests.
type sends struct {
	headers map[string]string
	inner   *http.Transport
}

func (s *sends) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for name, value := range s.headers {
		req.Header.Set(name, value)
	}
	// One that meets a connection which ended with the daemon is sent again, on a new one. See http.Transport; the header is not sent.
	req.Header["X-Idempotency-Key"] = []string{}
	return s.inner.RoundTrip(req)
}

type goSDKSession struct {
	ctx       context.Context
	transport *http.Transport
	*mcp.ClientSession
}

func openGoSDK(protocol string) func(context.Context, *endpoint) (session, error) {
	return func(ctx context.Context, e *endpoint) (session, error) {
		transport := &http.Transport{}
		opened, err := mcp.NewClient(&mcp.Implementation{Name: "foreign", Version: "1"}, nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: e.URL,
			HTTPClient: &http.Client{Transport: &sends{e.Headers, transport}}}, &mcp.ClientSessionOptions{ProtocolVersion: protocol})
		if err != nil {
			transport.CloseIdleConnections()
			return nil, err
		}
		s := &goSDKSession{ctx, transport, opened}
		if got := opened.InitializeResult().ProtocolVersion; got != protocol {
			s.close()
			return nil, fmt.Errorf("it speaks %s", got)
		}
		return s, nil
	}
}

func (s *goSDKSession) tools() (names []string, err error) {
	for tool, err := range s.Tools(s.ctx, nil) {
		if err != nil {
			return nil, err
		}
		names = append(names, tool.Name)
	}
	return names, nil
}

func (s *goSDKSession) call(tool, arguments string) (answer, error) {
	result, err := s.CallTool(s.ctx, &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
	if err != nil {
		return answer{}, err
	}
	var texts []string
	for _, content := range result.Content {
		text, is := content.(*mcp.TextContent)
		if !is {
			return answer{}, fmt.Errorf("a content is a %T", content)
		}
		texts = append(texts, text.Text)
	}
	return answer{strings.Join(texts, "\n"), result.IsError}, nil
}

func (s *goSDKSession) id() (string, error) { return s.ID(), nil }

func (s *goSDKSession) listen() error { return nil }

func (s *goSDKSession) close() error {
	defer s.transport.CloseIdleConnections()
	return s.Close()
}
