package daemon

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
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
	return stampOfFile(filepath.Join(root, filepath.FromSlash(path)))
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
