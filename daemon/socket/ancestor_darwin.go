package socket

import "golang.org/x/sys/unix"

func parentOf(pid int) (int, bool) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(info.Proc.P_pid) != pid {
		return 0, false
	}
	return int(info.Eproc.Ppid), true
}
