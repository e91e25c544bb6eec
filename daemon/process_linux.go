package daemon

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// birthOf is when a process started, in the kernel's ticks since the machine did; 0 when there is none. With it a
// process id that is used again is not taken for the process that had it.
func birthOf(process int) uint64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(process) + "/stat")
	if err != nil {
		return 0
	}
	// The second field is the program's name in brackets, and may hold anything; the start is the 22nd.
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return 0
	}
	fields := bytes.Fields(text[end+1:])
	if len(fields) < 20 || fields[0][0] == 'Z' { // it has ended, and its parent has not looked yet
		return 0
	}
	birth, err := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return 0
	}
	return birth
}

// commandLineOf is the command line of a process; nil when there is none, or it is nobody's business.
func commandLineOf(process int) []string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(process) + "/cmdline")
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}
