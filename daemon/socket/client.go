package socket

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// MaxLine bounds a request and an answer, the final newline included. A longer one is an error on the side that reads it.
const MaxLine = 1 << 20

var (
	// ErrAbsent is returned by Ask when there is no socket, or nobody listens on it.
	ErrAbsent = errors.New("no daemon answers; `knoot daemon` starts one")
	// ErrForeign is returned by Ask when socket or directory could be another user's. Nothing was sent.
	ErrForeign = errors.New("the daemon's socket is not safe to use")
	// ErrShut is returned by Ask when this process may not connect to the daemon, as in the sandboxes of agents.
	ErrShut = errors.New("this process may not speak to the daemon: run it outside of the sandbox")
	// ErrBusy is returned by Ask when the daemon has not answered before the context's deadline.
	ErrBusy = errors.New("the daemon does not answer in time; `knoot daemon --stop` ends it")
	// ErrGone is returned by Ask when the daemon closed the connection before it answered. It may have done what was asked.
	ErrGone = errors.New("the daemon ended before it answered; try again")
	// ErrGarbage is returned by Ask when what answered is no daemon: no line, half a line, too long a line, no JSON.
	ErrGarbage = errors.New("what answers on the daemon's socket is not knoot; `knoot daemon --stop` ends it")
)

// Ask sends one request to the daemon at l and returns its answer. The context bounds all of it; without a deadline it waits
// as long as the daemon keeps the connection. Whoever listens is checked to be this user before anything is sent. An answer
// with Error set is returned as it is, with a nil error.
func (l Location) Ask(ctx context.Context, req *Request) (*Response, error) {
	req.Version = Version
	line, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("request cannot be encoded: %w", err)
	}
	if len(line)+1 > MaxLine {
		return nil, fmt.Errorf("the request has %d bytes and the daemon takes %d; make it shorter", len(line)+1, MaxLine)
	}
	conn, err := l.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return nil, askError(ctx, err)
	}
	answer, err := readLine(bufio.NewReader(conn))
	if err != nil {
		return nil, askError(ctx, err)
	}
	resp := new(Response)
	if err := json.Unmarshal(answer, resp); err != nil || answer[0] != '{' {
		return nil, ErrGarbage
	}
	return resp, nil
}

// ReadRequest reads the line of a client. io.EOF says that the client left without a word.
func ReadRequest(r *bufio.Reader) (*Request, error) {
	line, err := readLine(r)
	if err != nil {
		return nil, err
	}
	req := new(Request)
	if err := json.Unmarshal(line, req); err != nil {
		return nil, fmt.Errorf("request is not JSON: %w", err)
	}
	return req, nil
}

// WriteResponse writes the daemon's line, stamped with its version. An answer that a client would refuse for its length
// becomes an error that says so.
func WriteResponse(w io.Writer, resp *Response) error {
	resp.Version = Version
	line, err := json.Marshal(resp)
	if err != nil {
		return fmt.Errorf("answer cannot be encoded: %w", err)
	}
	if len(line)+1 > MaxLine {
		line, err = json.Marshal(&Response{Version: Version, Code: "failed",
			Error: fmt.Sprintf("the answer has %d bytes and a command takes %d; ask for less", len(line)+1, MaxLine)})
		if err != nil {
			return err
		}
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// errTooLong and io.ErrUnexpectedEOF are what readLine makes of a line that is not one.
var errTooLong = errors.New("line is too long")

// readLine returns a line without its newline. It is never empty.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > MaxLine {
			return nil, errTooLong
		}
		line = append(line, part...)
		switch {
		case err == nil && len(line) == 1:
			return nil, io.ErrUnexpectedEOF
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// dial connects without the net package, whose resolver would be a fifth of a hook's start and would link libc.
func (l Location) dial(ctx context.Context) (*os.File, error) {
	if err := l.checkLength(); err != nil {
		return nil, err
	}
	if err := l.check(); err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return nil, ErrAbsent
		}
		return nil, orShut(err)
	}
	syscall.ForkLock.RLock() // no process started meanwhile inherits the descriptor
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, orShut(os.NewSyscallError("socket", err))
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		_ = syscall.Close(fd)
		return nil, os.NewSyscallError("setnonblock", err)
	}
	// A unix socket connects at once or not at all; EAGAIN means that the daemon's backlog is full for the moment.
	for {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: l.Socket()})
		if err == syscall.EINTR {
			continue
		}
		if err != syscall.EAGAIN {
			break
		}
		select {
		case <-ctx.Done():
			_ = syscall.Close(fd)
			return nil, ErrBusy
		case <-time.After(2 * time.Millisecond):
		}
	}
	if err != nil {
		_ = syscall.Close(fd)
		if err == syscall.ENOENT || err == syscall.ECONNREFUSED {
			return nil, ErrAbsent
		}
		return nil, orShut(os.NewSyscallError("connect", err))
	}
	return os.NewFile(uintptr(fd), l.Socket()), nil // not blocking, so it has deadlines
}

// orShut is ErrShut where a permission is missing. That a socket is not safe to use is another matter.
func orShut(err error) error {
	if errors.Is(err, fs.ErrPermission) && !errors.Is(err, ErrForeign) {
		return ErrShut
	}
	return err
}

func askError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil:
		return ErrBusy
	case err == io.EOF, errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		return ErrGone
	case err == io.ErrUnexpectedEOF, err == errTooLong:
		return ErrGarbage
	}
	return err
}
