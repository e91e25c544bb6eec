package gitlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// writerFile says which writer a clone is, and where that was so: a copied clone must become another writer, or two
// clones would append to one log.
type writerFile struct {
	Writer  string `json:"writer"`
	Device  uint64 `json:"dev"` // of the folder that holds the file
	Inode   uint64 `json:"inode"`
	Machine string `json:"machine"`
}

// errNoWriter is returned for a clone in which init has not drawn a writer yet.
var errNoWriter = errors.New("this clone has no writer yet: run `knoot init`")

func writerPath(common string) string { return filepath.Join(common, "knoot", "writer") }

// readWriter returns the clone's writer; copied says that the file came from another place, so that a new writer must
// be drawn before anything is appended.
func readWriter(common string, device DeviceID) (id WriterID, copied bool, err error) {
	text, err := os.ReadFile(writerPath(common))
	if errors.Is(err, fs.ErrNotExist) {
		return id, false, errNoWriter
	}
	if err != nil {
		return id, false, fmt.Errorf("cannot read this clone's writer: %w", err)
	}
	var file writerFile
	if err := json.Unmarshal(text, &file); err != nil {
		return id, false, fmt.Errorf("%s is damaged: remove it and run `knoot init`, which draws another writer", writerPath(common))
	}
	if id, err = ParseWriterID(file.Writer); err != nil {
		return id, false, fmt.Errorf("%s is damaged: remove it and run `knoot init`, which draws another writer", writerPath(common))
	}
	here, err := placeOf(common)
	if err != nil {
		return id, false, err
	}
	here.Writer = file.Writer
	return id, id.Device() != device || here != file, nil
}

// drawWriter makes this clone a new writer of the device.
func drawWriter(common string, device DeviceID) (id WriterID, err error) {
	copy(id[:], device[:])
	drawRandom(id[16:])
	if err := os.MkdirAll(filepath.Join(common, "knoot"), 0o700); err != nil {
		return id, fmt.Errorf("cannot make this clone a writer: %w", err)
	}
	file, err := placeOf(common)
	if err != nil {
		return id, err
	}
	file.Writer = id.String()
	text, err := json.Marshal(file)
	if err != nil {
		return id, err
	}
	if err := ReplaceFile(writerPath(common), append(text, '\n'), 0o600); err != nil {
		return id, fmt.Errorf("cannot make this clone a writer: %w", err)
	}
	return id, nil
}

func placeOf(common string) (writerFile, error) {
	info, err := os.Stat(filepath.Join(common, "knoot"))
	if err != nil {
		return writerFile{}, fmt.Errorf("cannot read this clone's writer: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return writerFile{}, errors.New("cannot read this clone's writer: the file system gives no inode")
	}
	return writerFile{Device: uint64(stat.Dev), Inode: stat.Ino, Machine: machineID()}, nil
}

// machineID names the machine as the system does; "" where it does not, and the inode has to do.
func machineID() string {
	for _, path := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if text, err := os.ReadFile(path); err == nil {
			return strings.TrimSpace(string(text))
		}
	}
	return ""
}
