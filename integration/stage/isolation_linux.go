package stage

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// insideNamespace marks the copy of the test program that runs in the network namespace.
const insideNamespace = "KNOOT_TEST_NAMESPACE"

// Isolated runs the tests in a network namespace that holds a loopback interface and nothing else, so a program that
// would talk to its vendor cannot. The whole test program moves there: the model, the daemon and the agent are then on
// the same loopback. It returns why that is not possible, or does not return: the program ends with what run returns.
func Isolated(run func() int) error {
	if os.Getenv(insideNamespace) != "" {
		if err := loopbackUp(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(cannotIsolate)
		}
		os.Exit(run())
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	command := exec.Command(executable, os.Args[1:]...)
	command.Env = append(os.Environ(), insideNamespace+"=1")
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		command.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	runtime.LockOSThread() // Pdeathsig comes when the thread that started the copy ends, not the process
	if err := command.Start(); err != nil {
		return fmt.Errorf("no network namespace: %w", err)
	}
	err = command.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case !errors.As(err, &exit):
		return err
	case exit.ExitCode() == cannotIsolate:
		return errors.New("the loopback interface of a network namespace could not be set up")
	}
	os.Exit(max(exit.ExitCode(), 1))
	panic("unreachable")
}

// cannotIsolate is the exit code of a copy that has no usable namespace; the tests' own are 0, 1 and 2.
const cannotIsolate = 97

func loopbackUp() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}
