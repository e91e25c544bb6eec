package daemon

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"knoot.dev/knoot/daemon/socket"
)

func TestNewerTakesOverAndNoHookIsLost(t *testing.T) {
	m := newMachine(t)
	old := m.startProcess("1.0.0")
	if line := old.says(t); line != "listening" {
		t.Fatal(line)
	}
	var stop atomic.Bool
	var asked, newer atomic.Int64
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for !stop.Load() {
				resp, err := m.ask(&socket.Request{Op: "hook", Hook: &socket.Hook{Agent: "claude", Session: "s", Event: "PreToolUse"}})
				if err != nil || resp.Error != "" || resp.Answer == nil {
					t.Errorf("a hook was lost: %v, %v", resp, err)
					return
				}
				asked.Add(1)
				if resp.Version == "1.1.0" {
					newer.Add(1)
				}
			}
		})
	}
	next := m.startProcess("1.1.0")
	if line := next.says(t); line != "listening" {
		t.Error(line)
	}
	if line := old.says(t); line != "ended" {
		t.Error(line)
	}
	deadline := time.Now().Add(20 * time.Second)
	for newer.Load() < 50 && time.Now().Before(deadline) && !t.Failed() {
		time.Sleep(time.Millisecond)
	}
	stop.Store(true)
	clients.Wait()
	if newer.Load() == 0 {
		t.Errorf("of %d hooks none reached the newer daemon", asked.Load())
	}
	if resp := m.mustAsk(&socket.Request{Op: "hello"}); resp.Version != "1.1.0" {
		t.Errorf("version %s serves", resp.Version)
	}
}

func TestOlderNeverTakesOver(t *testing.T) {
	m := newMachine(t)
	m.startProcess("1.1.0").says(t)
	for _, version := range []string{"1.0.0", "1.1.0"} {
		if line := m.startProcess(version).says(t); !strings.Contains(line, "version 1.1.0 runs already") {
			t.Errorf("%s: %s", version, line)
		}
	}
	version := socket.Version
	socket.Version = "0.9.0"
	defer func() { socket.Version = version }()
	resp, err := m.ask(&socket.Request{Op: "handover"})
	if err != nil || resp.Code != codeRefused {
		t.Errorf("a handover to version %s: %+v, %v", socket.Version, resp, err)
	}
}

func TestTakeoverThatFailsIsUndone(t *testing.T) {
	m := newMachine(t)
	m.startProcess("0.1.0").says(t)
	// A newer daemon that gets the seat and dies before it says that it took it.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	version := socket.Version
	socket.Version = "0.2.0"
	defer func() { socket.Version = version }()
	taken, err := takeOver(ctx, m.loc)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() { // it waits in the socket's queue
		_, err := m.ask(&socket.Request{Op: "hello"})
		asked <- err
	}()
	_ = taken.listener.Close()
	_ = taken.lock.Close()
	taken.drop()
	if err := <-asked; err != nil {
		t.Errorf("the older daemon does not go on: %v", err)
	}
	if resp := m.mustAsk(&socket.Request{Op: "hello"}); resp.Version != "0.1.0" {
		t.Errorf("version %s serves", resp.Version)
	}
}

func TestTakeoverKeepsTheLock(t *testing.T) {
	m := newMachine(t)
	m.startProcess("1.0.0").says(t)
	m.startProcess("1.1.0").says(t)
	if free, err := lockIsFree(m.loc.Lock()); free || err != nil {
		t.Errorf("the lock is free: %v, %v", free, err)
	}
}

func TestLockWithoutADaemonThatAnswers(t *testing.T) {
	m := newMachine(t)
	if err := m.loc.Make(); err != nil {
		t.Fatal(err)
	}
	lock, err := lockFile(m.loc.Lock())
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	defer lock.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := takeSeat(ctx, m.loc); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("takeSeat: %v", err)
	}
}

func TestSocketThatIsNoSocketIsNotRemoved(t *testing.T) {
	m := newMachine(t)
	if err := m.loc.Make(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, m.loc.Socket(), "mine")
	if _, err := takeSeat(context.Background(), m.loc); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("takeSeat: %v", err)
	}
}

func dialTest(t *testing.T, m *machine) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: m.loc.Socket(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}
