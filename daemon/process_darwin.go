package daemon

import (
	"bytes"
	"encoding/binary"
	"strings"

	"golang.org/x/sys/unix"
)

// birthOf is when a process started, in microseconds since 1970; 0 when there is none. With it a process id that is used
// again is not taken for the process that had it.
func birthOf(process int) uint64 {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", process)
	const zombie = 5 // it has ended, and its parent has not looked yet
	if err != nil || info.Proc.P_pid != int32(process) || info.Proc.P_stat == zombie {
		return 0
	}
	started := info.Proc.P_starttime
	return uint64(started.Sec)*1_000_000 + uint64(started.Usec)
}

// commandLineOf is the command line of a process; nil when there is none, or it is nobody's business.
func commandLineOf(process int) []string {
	// The number of arguments, the path of the executable, zeros, the arguments.
	text, err := unix.SysctlRaw("kern.procargs2", process)
	if err != nil || len(text) < 4 {
		return nil
	}
	count := int(binary.NativeEndian.Uint32(text))
	_, rest, _ := bytes.Cut(text[4:], []byte{0})
	args := strings.Split(strings.TrimLeft(string(rest), "\x00"), "\x00")
	return args[:min(max(count, 0), len(args))]
}
