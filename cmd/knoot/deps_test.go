package main

import (
	"os/exec"
	"strings"
	"testing"
)

// allowed is all that knoot links beside the standard library. A hook starts on every tool call of an agent, and each package
// that is linked is initialised at each start: what is heavy belongs into knootd, which answers over the socket.
var allowed = map[string]string{
	"knoot.dev/knoot/cmd/knoot":     "the command",
	"knoot.dev/knoot/hook":          "what it does",
	"knoot.dev/knoot/daemon/socket": "whom it asks",
	"knoot.dev/knoot/hook/shell":    "which files a command line names; the line itself goes to nobody",
	"knoot.dev/knoot/hook/patch":    "the same of a patch within one",
	"mvdan.cc/sh/v3/syntax":         "the parser of command lines",
	"mvdan.cc/sh/v3/fileutil":       "the parser links it, and with it regexp: 0.1 ms",
	"golang.org/x/sys/unix":         "on macOS the parent of a process is a system call that the standard library has not",
}

// refused are packages of the standard library that cost too much, or that this program has no business with.
var refused = map[string]string{
	"net":           "its resolver links libc and takes a fifth of a start; the socket is opened by system calls",
	"net/http":      "a hook speaks to the daemon on this machine and to nobody else",
	"crypto/tls":    "the same",
	"os/user":       "links libc, to find what HOME and the user id say",
	"os/exec":       "a hook runs nothing but the daemon, detached, which os does",
	"runtime/cgo":   "dynamic linking doubles the start of so small a program",
	"text/template": "slow to start, and output is a few fixed shapes",
	"flag":          "there are two flags",
	"log":           "a failing hook leaves one line in a file, and never prints",
}

func TestLinksNothingHeavy(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}} {{.Standard}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		path, standard, _ := strings.Cut(strings.TrimSpace(line), " ")
		if why, ok := refused[path]; ok {
			t.Errorf("knoot links %s: %s", path, why)
		}
		if _, ok := allowed[path]; !ok && standard == "false" {
			t.Errorf("knoot links %s, which is not on the list of what a hook may cost", path)
		}
	}
}
