package stage

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Address is HOST:PORT on loopback where nothing listens, on TCP and on UDP. The port is below those that systems give to connections and
// to whoever wants any, so that it is still free after what listened there has ended.
func Address(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		tcp, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		udp, err := net.ListenPacket("udp", address)
		_ = tcp.Close()
		if err == nil {
			_ = udp.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}
