package gitlog

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Paths are bytes as git's index has them, relative to the repository's root, held in strings that need not be UTF-8.
// The root itself is "".

// CanonicalPath brings a path to the one spelling in which it is stored: NFC if it is UTF-8, else as it is. It
// refuses what no path in git's index looks like: leading or trailing slash, NUL, and empty, "." or ".." components.
func CanonicalPath(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	if strings.IndexByte(path, 0) >= 0 {
		return "", fmt.Errorf("path %q holds a NUL: %w", path, errValue)
	}
	for part := range strings.SplitSeq(path, "/") {
		switch part {
		case "":
			return "", fmt.Errorf("path %q has a slash too many: %w", path, errValue)
		case ".", "..":
			return "", fmt.Errorf("path %q has a component %q: %w", path, part, errValue)
		}
	}
	if utf8.ValidString(path) {
		path = norm.NFC.String(path)
	}
	return path, nil
}

func checkPath(path string) error {
	canonical, err := CanonicalPath(path)
	if err == nil && canonical != path {
		err = fmt.Errorf("path %q is not in NFC: %w", path, errValue)
	}
	return err
}

// FoldPath folds A–Z, and nothing else, so that tokens, areas and hubs are the same on every machine whatever its
// file system does with case.
func FoldPath(path string) string {
	i := 0
	for i < len(path) && (path[i] < 'A' || path[i] > 'Z') {
		i++
	}
	if i == len(path) {
		return path
	}
	b := []byte(path)
	for ; i < len(b); i++ {
		if b[i] >= 'A' && b[i] <= 'Z' {
			b[i] += 'a' - 'A'
		}
	}
	return string(b)
}

const maxName = 100 // bytes

// CanonicalName brings the name of a fact or cached answer to the one spelling in which it is stored (NFC, trimmed,
// case kept) and refuses an empty one and one of over 100 bytes.
func CanonicalName(name string) (string, error) {
	if !utf8.ValidString(name) {
		return "", fmt.Errorf("the name %q: %w", name, errUTF8)
	}
	name = strings.TrimSpace(norm.NFC.String(name))
	switch {
	case name == "":
		return "", fmt.Errorf("a name is needed: %w", errValue)
	case len(name) > maxName:
		return "", fmt.Errorf("the name %q has %d bytes, at most %d are allowed: %w", name, len(name), maxName, errValue)
	}
	return name, nil
}

func checkName(name string) error {
	canonical, err := CanonicalName(name)
	if err == nil && canonical != name {
		err = fmt.Errorf("the name %q is not trimmed or not in NFC: %w", name, errValue)
	}
	return err
}
