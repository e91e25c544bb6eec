package daemon

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/text/unicode/norm"
)

// stamp tells cheaply that a file was not touched: two equal stamps are the same bytes, unless somebody went out of
// their way. The zero stamp is a file that is not there.
type stamp struct {
	Size  int64  `json:"size,omitempty"`
	Mtime int64  `json:"mtime,omitempty"` // nanoseconds
	Inode uint64 `json:"inode,omitempty"`
	Dir   bool   `json:"dir,omitempty"`
}

// stampOf looks at a path of a worktree.
func stampOf(root, path string) stamp {
	info, err := lookAt(root, path)
	if err != nil {
		return stamp{}
	}
	return stampOfInfo(info)
}

// lookAt is os.Lstat of a path of a worktree. Paths are composed here; where a file system tells both forms of a letter with an accent
// apart, a file may have the decomposed one.
func lookAt(root, path string) (fs.FileInfo, error) {
	file := filepath.Join(root, filepath.FromSlash(path))
	info, err := os.Lstat(file)
	if err != nil && strings.ContainsFunc(path, func(r rune) bool { return r >= 0x80 }) {
		if other, failed := os.Lstat(filepath.Join(root, norm.NFD.String(filepath.FromSlash(path)))); failed == nil {
			return other, nil
		}
	}
	return info, err
}

func stampOfFile(path string) stamp {
	info, err := os.Lstat(path)
	if err != nil {
		return stamp{}
	}
	return stampOfInfo(info)
}

func stampOfInfo(info fs.FileInfo) stamp {
	s := stamp{Size: info.Size(), Mtime: info.ModTime().UnixNano(), Dir: info.IsDir()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Inode = st.Ino
	}
	return s
}
