package stage

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Network is machines that reach each other through one switch, which is the test's own: every packet passes through it, and it
// loses, holds back, doubles or overtakes them, UDP and TCP alike. Each machine is a network namespace with one tunnel device.
type Network struct {
	t     testing.TB
	work  sync.WaitGroup
	mu    sync.Mutex
	ports []*Port              // guarded by mu; the nth has 10.77.n.0/24
	tap   func(packet *Packet) // guarded by mu
}

// Port is where a machine is plugged into a network.
type Port struct {
	network   *Network
	number    int
	namespace *os.File
	tunnel    *os.File

	host    int     // guarded by network.mu: the last number of its address
	weather Weather // guarded by network.mu
}

// Weather is what befalls packets between a machine and all others, in both directions. The zero value is good weather.
type Weather struct {
	Cut    bool          // nothing passes, and nobody is told
	NoUDP  bool          // nor does UDP
	Loss   float64       // the chance that a packet is lost
	Double float64       // the chance that it comes twice
	Delay  time.Duration // how long each takes
	Jitter time.Duration // how much longer at most: each by itself, so that they overtake each other
}

// Packet is one IP packet that a machine sends. It is only valid while the tap runs.
type Packet struct {
	From, To *Port
	Bytes    []byte
}

// UDP and TCP say what a packet carries.
func (p *Packet) UDP() bool { return p.Bytes[9] == unix.IPPROTO_UDP }
func (p *Packet) TCP() bool { return p.Bytes[9] == unix.IPPROTO_TCP }

// NewNetwork makes a network without machines, or skips the test where there can be none. It is gone with the test.
func NewNetwork(t testing.TB) *Network {
	t.Helper()
	for _, name := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no network namespaces here: %v", err)
		}
	}
	n := &Network{t: t}
	t.Cleanup(func() {
		n.mu.Lock()
		for _, p := range n.ports {
			p.tunnel.Close()
			p.namespace.Close()
		}
		n.mu.Unlock()
		n.work.Wait()
	})
	return n
}

// Plug adds a machine.
func (n *Network) Plug() *Port {
	n.t.Helper()
	type made struct {
		namespace, tunnel *os.File
		err               error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread() // the thread is in another namespace, and ends with the goroutine
		var m made
		m.namespace, m.tunnel, m.err = newNamespace()
		done <- m
	}()
	m := <-done
	if m.err != nil {
		n.t.Skipf("no network namespaces here: %v", m.err)
	}
	n.mu.Lock()
	p := &Port{network: n, number: len(n.ports), namespace: m.namespace, tunnel: m.tunnel, host: 1}
	n.ports = append(n.ports, p)
	n.mu.Unlock()
	p.ip("link", "set", "lo", "up")
	p.ip("address", "add", p.Address()+"/32", "dev", tunnelName)
	p.ip("link", "set", tunnelName, "up")
	p.ip("route", "add", "default", "dev", tunnelName)
	n.work.Go(func() {
		for packet := make([]byte, 1<<16); ; {
			size, err := p.tunnel.Read(packet)
			if err != nil {
				return // the network is gone
			}
			n.pass(p, packet[:size])
		}
	})
	return p
}

const tunnelName = "knoot0"

// newNamespace moves the calling thread into a new network namespace that has one tunnel device.
func newNamespace() (namespace, tunnel *os.File, err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, nil, fmt.Errorf("unshare: %w", err)
	}
	if namespace, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return nil, nil, err
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		var request *unix.Ifreq
		if request, err = unix.NewIfreq(tunnelName); err == nil {
			request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
		}
		if err != nil {
			_ = unix.Close(fd)
		}
	}
	if err != nil {
		namespace.Close()
		return nil, nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	return namespace, os.NewFile(uintptr(fd), tunnelName), nil
}

// Address is the machine's own.
func (p *Port) Address() string {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	return p.address()
}

// address is Address. mu is held.
func (p *Port) address() string { return fmt.Sprintf("10.77.%d.%d", p.number, p.host) }

// Move gives the machine another address and takes the one that it had, as a laptop has it that is carried to another network.
func (p *Port) Move() {
	p.network.t.Helper()
	p.network.mu.Lock()
	old := p.address()
	p.host++
	p.network.mu.Unlock()
	p.ip("address", "add", p.Address()+"/32", "dev", tunnelName)
	p.ip("address", "delete", old+"/32", "dev", tunnelName)
	p.ip("route", "replace", "default", "dev", tunnelName)
}

// Inside are the words before the command line of a program that runs on the machine.
func (p *Port) Inside() []string {
	return []string{"nsenter", fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), p.namespace.Fd())}
}

func (p *Port) ip(args ...string) {
	p.network.t.Helper()
	words := append(append(p.Inside(), "ip"), args...)
	if output, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		p.network.t.Fatalf("ip %q: %v: %s", args, err, output)
	}
}

// Dial connects from the machine.
func (p *Port) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	type dialed struct {
		conn net.Conn
		err  error
	}
	done := make(chan dialed, 1)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		err := unix.Setns(int(p.namespace.Fd()), unix.CLONE_NEWNET)
		var d dialed
		if d.err = err; err == nil {
			d.conn, d.err = new(net.Dialer).DialContext(ctx, network, address)
		}
		done <- d
	}()
	d := <-done
	return d.conn, d.err
}

// Set changes the machine's weather.
func (p *Port) Set(w Weather) {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	p.weather = w
}

// Tap has every packet that a machine sends looked at, whatever becomes of it; nil: none any more.
func (n *Network) Tap(tap func(packet *Packet)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tap = tap
}

// pass brings a packet to the machine that it is for.
func (n *Network) pass(from *Port, packet []byte) {
	const header = 20
	if len(packet) < header || packet[0]>>4 != 4 {
		return // there is nobody to hear the greetings of IPv6
	}
	to := binary.BigEndian.Uint32(packet[16:])
	number := int(to >> 8 & 0xff)
	n.mu.Lock()
	defer n.mu.Unlock()
	if to>>16 != 10<<8|77 || number >= len(n.ports) {
		return
	}
	p := &Packet{From: from, To: n.ports[number], Bytes: packet}
	if n.tap != nil {
		n.tap(p)
	}
	for _, after := range p.To.weather.befall(p, from.weather.befall(p, []time.Duration{0})) {
		if after == 0 {
			_, _ = p.To.tunnel.Write(packet) // as it is with packets
			continue
		}
		copied := append([]byte{}, packet...)
		time.AfterFunc(after, func() { _, _ = p.To.tunnel.Write(copied) })
	}
}

// befall says after which times a packet passes that got here after those.
func (w *Weather) befall(p *Packet, came []time.Duration) (pass []time.Duration) {
	if w.Cut || w.NoUDP && p.UDP() {
		return nil
	}
	for _, after := range came {
		for chance := 1.0; rand.Float64() < chance && rand.Float64() >= w.Loss; chance = w.Double {
			pass = append(pass, after+w.Delay+time.Duration(rand.Float64()*float64(w.Jitter)))
		}
	}
	return pass
}
