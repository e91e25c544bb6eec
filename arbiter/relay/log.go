package relay

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The relay's log is a row of files, each of which begins with the state of every repository and goes on with events. So
// any file and those after it are enough, and old ones are dropped. A record is synced before anybody hears of it; many
// that wait share one sync. It is no format for keeps: what has to last is in git.
const (
	logMagic     = "knoot relay log 1\n"
	recordHead   = 8 // length and CRC-32C, uint32 each
	logExtension = ".log"

	recordState = 'S' // number, team, repository, term, snapshot (empty: a new View)
	recordEvent = 'E' // number, event
	recordTerm  = 'T' // number, term
)

// checksum is CRC-32C. Its table is made when it is first needed: every command of knoot is this program.
func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// disk is where the log is: the operating system's, or a test's that fails.
type disk interface {
	// Create makes a file that must not be there yet.
	Create(path string) (logFile, error)
	// SyncDir makes names in a folder durable.
	SyncDir(path string) error
}

type logFile interface {
	io.Writer
	Sync() error
	Close() error
}

type osDisk struct{}

func (osDisk) Create(path string) (logFile, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

func (osDisk) SyncDir(path string) error { return syncDir(path) }

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// appendRecord frames one record whose payload is the parts, end to end.
func appendRecord(b []byte, parts ...[]byte) []byte {
	at := len(b)
	b = append(b, make([]byte, recordHead)...)
	for _, part := range parts {
		b = append(b, part...)
	}
	payload := b[at+recordHead:]
	binary.BigEndian.PutUint32(b[at:], uint32(len(payload)))
	binary.BigEndian.PutUint32(b[at+4:], checksum(payload))
	return b
}

var errTorn = errors.New("the record is not whole")

// readRecord reads the next record into memory of its own; io.EOF at the end, errTorn where the rest is no record.
func readRecord(r *bufio.Reader, rest int64) ([]byte, error) {
	var head [recordHead]byte
	if _, err := io.ReadFull(r, head[:]); err == io.EOF {
		return nil, io.EOF
	} else if err != nil {
		return nil, errTorn
	}
	size := int64(binary.BigEndian.Uint32(head[:]))
	if size < 1 || size > rest-recordHead {
		return nil, errTorn
	}
	payload := make([]byte, size)
	if _, err := io.ReadFull(r, payload); err != nil {
		return nil, errTorn
	}
	if checksum(payload) != binary.BigEndian.Uint32(head[4:]) {
		return nil, errTorn
	}
	return payload, nil
}

// logNumbers lists the log's files, oldest first.
func logNumbers(dir string) ([]uint64, error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var numbers []uint64
	for _, name := range names {
		digits, ok := strings.CutSuffix(name.Name(), logExtension)
		if number, err := strconv.ParseUint(digits, 16, 64); ok && err == nil {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

func logPath(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%016x%s", number, logExtension))
}

// replay hands over every record of one file. Only the newest may be torn: it was being written when the relay ended. It
// is cut there.
func replay(path string, newest bool, take func(payload []byte) error) (size int64, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	r := bufio.NewReaderSize(f, 64<<10)
	magic := make([]byte, len(logMagic))
	if n, err := io.ReadFull(r, magic); err != nil || string(magic) != logMagic {
		if newest && string(magic[:n]) == logMagic[:n] {
			return 0, os.Remove(path) // it was begun and never used
		}
		return 0, fmt.Errorf("%s is no log that this version of the relay reads", path)
	}
	at := int64(len(logMagic))
	for {
		payload, err := readRecord(r, info.Size()-at)
		switch {
		case err == io.EOF:
			return at, nil
		case err != nil && newest:
			if err := f.Truncate(at); err != nil {
				return at, err
			}
			return at, f.Sync()
		case err != nil:
			return at, fmt.Errorf("%s is damaged at byte %d: move the folder away, but for the key, and start again", path, at)
		}
		if err := take(payload); err != nil {
			return at, fmt.Errorf("%s, the record at byte %d: %w", path, at, err)
		}
		at += recordHead + int64(len(payload))
	}
}

// batch is what shares one sync.
type batch struct {
	records []byte
	reached map[*repository]uint64 // how far each one's tail is durable with it
	done    chan struct{}          // closed once it is on the disk, or cannot be
	err     error                  // set before done is closed
}

// writeAhead writes the log. Its one goroutine owns the file.
type writeAhead struct {
	dir      string
	disk     disk
	fileSize int64 // when to begin another file

	// cut stops the world, takes what waits (take), and returns the records of everybody's state at that moment.
	cut func(take func()) []byte
	// dropped says that the files before a number are gone.
	dropped func(before uint64)
	// keep says how many bytes of files are kept, and from which file on none is dropped yet for its age.
	keepBytes int64
	young     func(number uint64) bool
	observe   func(time.Duration) // how long a write took; nil: nobody asks
	total     atomic.Int64        // bytes of all files

	mu      sync.Mutex
	changed sync.Cond // of mu
	waiting *batch    // being gathered
	writing *batch    // being written
	err     error     // nothing can be written any more
	closing bool

	file    logFile
	number  uint64 // of file
	size    int64
	base    int64 // of it, what is state
	sizes   map[uint64]int64
	stopped chan struct{}
}

// start begins a new file and the goroutine.
func (w *writeAhead) start(number uint64) error {
	w.changed.L = &w.mu
	w.stopped = make(chan struct{})
	w.waiting = newBatch()
	if err := w.begin(number, w.cut(func() {})); err != nil {
		return err
	}
	go w.loop()
	return nil
}

func newBatch() *batch { return &batch{done: make(chan struct{}), reached: map[*repository]uint64{}} }

// begin makes the next file, complete with the state, before anything counts on it; then old files go.
func (w *writeAhead) begin(number uint64, state []byte) error {
	path := logPath(w.dir, number)
	f, err := w.disk.Create(path)
	if err != nil {
		return err
	}
	content := append([]byte(logMagic), state...)
	if _, err = f.Write(content); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = w.disk.SyncDir(w.dir)
	}
	if err != nil {
		f.Close()
		_ = os.Remove(path)
		return err
	}
	if w.file != nil {
		_ = w.file.Close()
	}
	w.file, w.number = f, number
	w.size = int64(len(content))
	w.base = w.size
	w.sizes[number] = w.size
	w.drop()
	w.weigh()
	return nil
}

// drop deletes old files: what they hold is in the newer ones' state, and who resumes from there gets a snapshot.
func (w *writeAhead) drop() {
	numbers := make([]uint64, 0, len(w.sizes))
	total := int64(0)
	for number, size := range w.sizes {
		numbers = append(numbers, number)
		total += size
	}
	slices.Sort(numbers)
	for _, number := range numbers {
		if number == w.number || total <= w.keepBytes && w.young(number) {
			break
		}
		if err := os.Remove(logPath(w.dir, number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			break // tried again at the next file
		}
		total -= w.sizes[number]
		delete(w.sizes, number)
		w.dropped(number + 1)
	}
}

// append adds records, and returns the batch whose sync makes them durable. The caller holds the repository, so that its
// records stand in its own order.
func (w *writeAhead) append(records []byte, of *repository, reached uint64) *batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.failed()
	}
	w.waiting.records = append(w.waiting.records, records...)
	w.waiting.reached[of] = reached
	w.changed.Signal()
	return w.waiting
}

// barrier returns a batch with which everything appended so far is durable, nil if it is.
func (w *writeAhead) barrier() *batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return w.failed()
	case len(w.waiting.records) > 0:
		return w.waiting
	}
	return w.writing
}

// failed is a batch that was given up. mu is held.
func (w *writeAhead) failed() *batch {
	b := &batch{done: make(chan struct{}), err: w.err}
	close(b.done)
	return b
}

var errLogClosed = errors.New("the relay has ended")

func (w *writeAhead) loop() {
	defer close(w.stopped)
	for {
		w.mu.Lock()
		for len(w.waiting.records) == 0 && !w.closing {
			w.changed.Wait()
		}
		if len(w.waiting.records) == 0 {
			w.err = errLogClosed
			w.mu.Unlock()
			_ = w.file.Close()
			return
		}
		w.mu.Unlock()
		// A file grows to four times its state at least, or a large state would be written all the time.
		full := w.size >= max(w.fileSize, 4*w.base)
		var b *batch
		take := func() {
			w.mu.Lock()
			b, w.waiting = w.waiting, newBatch()
			w.writing = b
			w.mu.Unlock()
		}
		var state []byte
		if full {
			state = w.cut(take)
		} else {
			take()
		}
		err := w.write(b)
		if err == nil && full {
			err = w.begin(w.number+1, state)
		}
		w.finish(b, err)
		if err != nil {
			_ = w.file.Close()
			return
		}
	}
}

func (w *writeAhead) weigh() {
	total := int64(0)
	for _, size := range w.sizes {
		total += size
	}
	w.total.Store(total)
}

// failure is why nothing can be written any more.
func (w *writeAhead) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *writeAhead) write(b *batch) error {
	start := time.Now()
	if _, err := w.file.Write(b.records); err != nil {
		return err
	}
	if err := w.file.Sync(); err != nil {
		return err
	}
	w.size += int64(len(b.records))
	w.sizes[w.number] = w.size
	w.total.Add(int64(len(b.records)))
	if w.observe != nil {
		w.observe(time.Since(start))
	}
	return nil
}

// finish tells everybody who waits. After an error nothing is written any more: what is on the disk is read again.
func (w *writeAhead) finish(b *batch, err error) {
	if err == nil {
		for repository, reached := range b.reached {
			repository.publish(reached)
		}
	}
	w.mu.Lock()
	b.err = err
	w.writing = nil
	var lost *batch
	if err != nil {
		w.err = fmt.Errorf("the log cannot be written: %w", err)
		b.err = w.err
		lost, w.waiting = w.waiting, newBatch()
		lost.err = w.err
	}
	w.mu.Unlock()
	close(b.done)
	if lost != nil {
		close(lost.done)
	}
}

// close writes what waits and ends the goroutine.
func (w *writeAhead) close() {
	w.mu.Lock()
	w.closing = true
	w.changed.Signal()
	w.mu.Unlock()
	<-w.stopped
}
