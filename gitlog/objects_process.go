package gitlog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// processObjects reaches objects through the person's git: a `cat-file --batch` that lives as long as it is used for reading,
// and a `hash-object` each for writing.
type processObjects struct {
	repo *Repository

	mu    sync.Mutex
	batch *batchProcess // nil: none runs; guarded by mu, one question at a time
}

func newProcessObjects(repo *Repository) *processObjects { return &processObjects{repo: repo} }

type batchProcess struct {
	cmd       *exec.Cmd
	stop      context.CancelFunc
	ask       io.WriteCloser
	answer    *bufio.Reader
	complaint *cappedBuffer
}

func (p *processObjects) start() error {
	// The process outlives the question that starts it, so it hangs on no caller's context.
	ctx, stop := context.WithCancel(context.Background())
	cmd := p.repo.git().command(ctx, "cat-file", "--batch")
	b := &batchProcess{cmd: cmd, stop: stop, complaint: &cappedBuffer{max: 4 << 10}}
	cmd.Stderr = b.complaint
	var err error
	if b.ask, err = cmd.StdinPipe(); err == nil {
		var out io.ReadCloser
		if out, err = cmd.StdoutPipe(); err == nil {
			b.answer = bufio.NewReaderSize(out, 64<<10)
			err = cmd.Start()
		}
	}
	if err != nil {
		stop()
		return explainRun(ctx, []string{"cat-file"}, "", err)
	}
	p.batch = b
	return nil
}

// end stops the process and returns what it complained about.
func (p *processObjects) end() string {
	b := p.batch
	p.batch = nil
	b.stop()
	_ = b.cmd.Wait() // killed by us, or already dead of what it says on stderr
	return b.complaint.String()
}

func (p *processObjects) read(ctx context.Context, h Hash, max int64) (string, []byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return "", nil, err
	}
	if p.batch == nil {
		if err := p.start(); err != nil {
			return "", nil, err
		}
	}
	unwatch := context.AfterFunc(ctx, p.batch.stop)
	kind, content, err := p.batch.read(h, max)
	unwatch()
	switch {
	case err == nil:
		return kind, content, nil
	case errors.Is(err, errMissingObject):
		if _, statErr := os.Stat(p.loosePath(h)); statErr == nil {
			return "", nil, errCorruptObject // git calls missing what it cannot inflate
		}
		return "", nil, err
	case errors.Is(err, errObjectTooLarge):
		p.end() // cheaper than to read on to where the next answer begins
		return "", nil, err
	}
	said := p.end()
	if ctx.Err() != nil {
		return "", nil, ctx.Err()
	}
	if strings.Contains(said, "promisor") {
		return "", nil, errMissingObject
	}
	if strings.Contains(said, h.short()) || strings.Contains(said, "loose object") || strings.Contains(said, "packfile") || strings.Contains(said, "inflate") {
		return "", nil, fmt.Errorf("%w (%s)", errCorruptObject, complaint(said, 128))
	}
	return "", nil, fmt.Errorf("git cat-file ended early: %s", complaint(said, 128))
}

func (h Hash) short() string { return string(h[:min(len(h), 7)]) }

func (b *batchProcess) read(h Hash, max int64) (kind string, content []byte, err error) {
	if _, err := io.WriteString(b.ask, string(h)+"\n"); err != nil {
		return "", nil, err
	}
	line, err := b.answer.ReadString('\n')
	if err != nil {
		return "", nil, err
	}
	fields := strings.Fields(line)
	if len(fields) == 2 && fields[1] == "missing" {
		return "", nil, errMissingObject
	}
	if len(fields) != 3 || fields[0] != string(h) {
		return "", nil, fmt.Errorf("cat-file answered %q", line)
	}
	size, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return "", nil, err
	}
	if size > max {
		return "", nil, errObjectTooLarge
	}
	content = make([]byte, size)
	if _, err := io.ReadFull(b.answer, content); err != nil {
		return "", nil, err
	}
	_, err = b.answer.Discard(1)
	return fields[1], content, err
}

func (p *processObjects) write(ctx context.Context, objects []rawObject) error {
	for _, o := range objects {
		out, _, err := p.repo.git().run(ctx, o.content, "hash-object", "-w", "-t", o.kind, "--stdin")
		if err != nil {
			return err
		}
		if got := Hash(strings.TrimSpace(string(out))); got != o.id {
			return fmt.Errorf("git stored %s as %s: report this", o.id, got)
		}
		// Which of git's settings syncs objects depends on its version; it syncs no directory in any.
		if err := syncPath(p.loosePath(o.id)); errors.Is(err, os.ErrNotExist) {
			continue // it is in a pack already
		} else if err != nil {
			return err
		}
		dir := filepath.Dir(p.loosePath(o.id))
		if err := syncUpwards(dir, filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return nil
}

func (p *processObjects) loosePath(h Hash) string {
	return filepath.Join(p.repo.CommonDir, "objects", string(h[:2]), string(h[2:]))
}

func (p *processObjects) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.batch != nil {
		p.end()
	}
	return nil
}
