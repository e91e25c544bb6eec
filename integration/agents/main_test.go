package agents

import (
	"context"
	"os"
	"testing"
	"time"

	"knoot.dev/knoot/integration/stage"
)

// notIsolated says why agents cannot be run here; they are never run with a network.
var notIsolated error

func TestMain(m *testing.M) {
	notIsolated = stage.Isolated(func() int { return run(m) })
	os.Exit(run(m))
}

func run(m *testing.M) int {
	code := stage.Run(m)
	results.print(os.Stdout)
	return code
}

func model(t *testing.T, script Script) *Model {
	t.Helper()
	m, err := NewModel(script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
