package daemon

import "golang.org/x/sys/unix"

// birthOf is when a process started, in microseconds since 1970; 0 when there is none. With it a process id that is used
// again is not taken for the process that had it.
func birthOf(process int) uint64 {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", process)
	if err != nil || info.Proc.P_pid != int32(process) {
		return 0
	}
	started := info.Proc.P_starttime
	return uint64(started.Sec)*1_000_000 + uint64(started.Usec)
}
