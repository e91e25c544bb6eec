package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// nodeClients are the clients that run on Node.js.
func nodeClients(t testing.TB) []client {
	dir, missing := folder(t)
	v1, v2, inspector := locked(t, "@modelcontextprotocol/sdk"), locked(t, "@modelcontextprotocol/client"), locked(t, "@modelcontextprotocol/inspector")
	return []client{
		{name: "TypeScript SDK", version: v1, protocol: "2025-11-25", missing: missing, open: openTypeScript(dir, "2025-11-25", "v1")},
		{name: "TypeScript SDK", version: v2, protocol: "2025-11-25", missing: missing, open: openTypeScript(dir, "2025-11-25", "v2")},
		{name: "TypeScript SDK", version: v2, protocol: sessionless, missing: missing, open: openTypeScript(dir, sessionless, "v2", "auto")},
		{name: "inspector --cli", version: inspector, protocol: "2025-11-25", missing: missing, open: openInspector(dir, "legacy"), calls: true, silent: true},
		{name: "inspector --cli", version: inspector, protocol: sessionless, missing: missing, open: openInspector(dir, "modern"), calls: true, silent: true},
	}
}

// typeScript is typescript.cjs at work.
type typeScript struct {
	protocol string
	command  *exec.Cmd
	in       io.WriteCloser
	out      *json.Decoder
	stderr   bytes.Buffer // to be read after its end
	ended    bool
}

func openTypeScript(dir, protocol string, arguments ...string) func(context.Context, *endpoint) (session, error) {
	return func(ctx context.Context, e *endpoint) (session, error) {
		ts := &typeScript{protocol: protocol}
		ts.command = exec.CommandContext(ctx, node(dir), append([]string{"typescript.cjs", dir}, arguments...)...)
		ts.command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + e.TempDir()}
		ts.command.Stderr = &ts.stderr
		out, err := ts.command.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if ts.in, err = ts.command.StdinPipe(); err != nil {
			return nil, err
		}
		if err := ts.command.Start(); err != nil {
			return nil, err
		}
		ts.out = json.NewDecoder(out)
		var speaks string
		err = ts.does(&speaks, map[string]any{"do": "connect", "url": e.URL, "headers": e.Headers})
		if err == nil && speaks != protocol {
			err = fmt.Errorf("it speaks %s", speaks)
		}
		if err != nil {
			return nil, errors.Join(err, ts.end())
		}
		return ts, nil
	}
}

// does has it do something, and reads what came of it.
func (ts *typeScript) does(is any, what map[string]any) error {
	line, err := json.Marshal(what)
	if err != nil {
		return err
	}
	if _, err := ts.in.Write(append(line, '\n')); err != nil {
		return err
	}
	var got struct {
		Is    json.RawMessage
		Error string
	}
	if err := ts.out.Decode(&got); err != nil {
		return fmt.Errorf("it said nothing: %w: %v", err, ts.end())
	}
	if got.Error != "" {
		return errors.New(got.Error)
	}
	return json.Unmarshal(got.Is, is)
}

func (ts *typeScript) tools() (names []string, err error) {
	err = ts.does(&names, map[string]any{"do": "list"})
	return names, err
}

func (ts *typeScript) call(tool, arguments string) (answer, error) {
	var got struct {
		Text   string
		Failed bool
	}
	err := ts.does(&got, map[string]any{"do": "call", "name": tool, "arguments": json.RawMessage(arguments)})
	return answer{got.Text, got.Failed}, err
}

func (ts *typeScript) id() (id string, err error) {
	err = ts.does(&id, map[string]any{"do": "session"})
	return id, err
}

func (ts *typeScript) listen() error {
	if ts.protocol != sessionless {
		return nil // connecting has done so
	}
	var ended string
	err := ts.does(&ended, map[string]any{"do": "listen"})
	if err == nil && ended != "graceful" {
		err = fmt.Errorf("it takes it that its stream ended so: %s", ended)
	}
	return err
}

func (ts *typeScript) close() error {
	if ts.ended {
		return nil
	}
	var done bool
	return errors.Join(ts.does(&done, map[string]any{"do": "close"}), ts.end())
}

// end ends the program; its error is what it said.
func (ts *typeScript) end() error {
	if ts.ended {
		return nil
	}
	ts.ended = true
	_ = ts.in.Close()
	if err := ts.command.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, ts.stderr.String())
	}
	return nil
}

// inspector runs the inspector for each request.
type inspector struct {
	ctx      context.Context
	dir, era string
	home     string
	at       *endpoint
}

func openInspector(dir, era string) func(context.Context, *endpoint) (session, error) {
	return func(ctx context.Context, e *endpoint) (session, error) {
		return &inspector{ctx, dir, era, e.TempDir(), e}, nil
	}
}

// run runs it for one method and reads the result. It fails where that is an error of the protocol, or none.
func (i *inspector) run(result any, arguments ...string) error {
	arguments = append([]string{filepath.Join(i.dir, "node_modules", "@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js"),
		"--cli", i.at.URL, "--transport", "http", "--protocol-era", i.era, "--format", "json", "--stored-auth-only"}, arguments...)
	for name, value := range i.at.Headers {
		arguments = append(arguments, "--header", name+": "+value)
	}
	command := exec.CommandContext(i.ctx, node(i.dir), arguments...)
	command.Env = []string{"PATH=" + filepath.Dir(node(i.dir)) + ":" + os.Getenv("PATH"), "HOME=" + i.home}
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	if json.Unmarshal(stdout.Bytes(), result) == nil {
		return nil // a result that is an error has an exit code, too
	}
	return fmt.Errorf("%v: %s%s", err, stdout.String(), stderr.String())
}

func (i *inspector) tools() (names []string, err error) {
	var listed struct {
		Result struct{ Tools []struct{ Name string } }
	}
	err = i.run(&listed, "--method", "tools/list")
	for _, tool := range listed.Result.Tools {
		names = append(names, tool.Name)
	}
	return names, err
}

func (i *inspector) call(tool, arguments string) (answer, error) {
	var got struct {
		Result *struct {
			Content []struct{ Text string }
			IsError bool
		}
	}
	if err := i.run(&got, "--method", "tools/call", "--tool-name", tool, "--tool-args-json", arguments); err != nil {
		return answer{}, err
	}
	if got.Result == nil {
		return answer{}, errors.New("it printed no result")
	}
	var texts []string
	for _, content := range got.Result.Content {
		texts = append(texts, content.Text)
	}
	return answer{strings.Join(texts, "\n"), got.Result.IsError}, nil
}

func (*inspector) id() (string, error) { return "", nil }

func (*inspector) listen() error { return nil }

func (*inspector) close() error { return nil }
