package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// droppedSYN makes one connection to an address whose SYN, or the answer to it, is dropped for a
// reason that counts as a fault. The kernel drops it before connect() returns. The connection stays
// open until the test ends, because the kernel forgets the drop with it.
func (n *testNet) droppedSYN(t *testing.T, to netip.AddrPort, answer bool) {
	t.Helper()
	n.in(t, func() error {
		family, at := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())})
		if to.Addr().Is4() {
			family, at = unix.AF_INET, sockaddr(to)
		}
		var s [2]int
		for i := range s {
			var err error
			if s[i], err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
				return err
			}
			t.Cleanup(func() { unix.Close(s[i]) })
		}
		server, client := s[0], s[1]
		if err := errors.Join(unix.Bind(server, at), unix.Listen(server, 1)); err != nil {
			return fmt.Errorf("listen on %s: %w", to, err)
		}
		if answer {
			deaf(t, client)
		} else {
			deaf(t, server)
		}
		if err := unix.Connect(client, at); !errors.Is(err, unix.EINPROGRESS) {
			return fmt.Errorf("connect to %s: %w", to, err)
		}
		return nil
	})
}

// marked returns the destinations of the namespace's connections that lost packets.
func marked(t *testing.T, l *Loaded, netns uint32) (to []netip.AddrPort) {
	t.Helper()
	var key [40]byte // struct tuple
	var mark [32]byte
	it := l.maps[SockfailMapMarks].Iterate()
	for it.Next(&key, &mark) {
		if binary.NativeEndian.Uint32(key[36:]) == netns {
			to = append(to, netip.AddrPortFrom(netip.AddrFrom16([16]byte(key[16:32])).Unmap(), binary.NativeEndian.Uint16(key[34:])))
		}
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return to
}

// needsDropReasons skips the test if no program sees dropped packets.
func needsDropReasons(t *testing.T, l *Loaded) {
	t.Helper()
	for _, r := range l.Reports() {
		if r.Program == SockfailProgDropRaw && r.State != Attached {
			t.Skipf("%s: %s", r.Program, r.Reason)
		}
	}
}

// TestSockFailDrops drops a SYN, and the answer to one, on the way to a target of each kind, and to
// an address that is no target.
func TestSockFailDrops(t *testing.T) {
	k := testKernel(t)
	n := newTestNet(t)
	needsDropReasons(t, watch(t, k, NewSockTargetKey(n.inode, netip.MustParseAddr("192.0.2.1"), 1)))
	addrs := []string{"127.0.0.1", "::1"}
	if testing.Short() {
		addrs = addrs[:1] // the other address is left to make test-all
	}
	for _, addr := range addrs {
		here := netip.MustParseAddr(addr)
		elsewhere := []SockTargetKey{ // whose ports set other bits of the bitmap
			NewSockTargetKey(n.inode, netip.MustParseAddr("192.0.2.1"), 4711+64),
			NewSockTargetKey(n.inode, here, 4712), NewSockTargetKey(0, netip.MustParseAddr("192.0.2.1"), 65535),
		}
		for _, c := range []struct {
			name    string
			targets []SockTargetKey
			marks   []uint16 // expected among the ports 4711 and 4713
		}{
			{"of its own", []SockTargetKey{NewSockTargetKey(n.inode, here, 4711)}, []uint16{4711}},
			{"any namespace", []SockTargetKey{NewSockTargetKey(0, here, 4711)}, []uint16{4711}},
			{"any port", []SockTargetKey{NewSockTargetKey(n.inode, here, 0)}, []uint16{4711, 4713}},
			{"any port, any namespace", []SockTargetKey{NewSockTargetKey(0, here, 0)}, []uint16{4711, 4713}},
			{"any port of another address", []SockTargetKey{NewSockTargetKey(n.inode, netip.MustParseAddr("192.0.2.1"), 0)}, nil},
			{"any address", []SockTargetKey{NewSockTargetKey(n.inode, netip.Addr{}, 4711)}, []uint16{4711}},
			{"anything", []SockTargetKey{NewSockTargetKey(n.inode, netip.Addr{}, 0)}, []uint16{4711, 4713}},
			{"its port at another address", []SockTargetKey{NewSockTargetKey(n.inode, netip.MustParseAddr("192.0.2.1"), 4711)}, nil},
			{"none", nil, nil},
		} {
			for _, answer := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/answer=%v", addr, c.name, answer), func(t *testing.T) {
					l := watch(t, k, append(c.targets, elsewhere...)...)
					for _, port := range []uint16{4711, 4713} {
						n.droppedSYN(t, netip.AddrPortFrom(here, port), answer)
					}
					var want []netip.AddrPort
					for _, port := range c.marks {
						want = append(want, netip.AddrPortFrom(here, port))
					}
					got := marked(t, l, n.inode)
					slices.SortFunc(got, netip.AddrPort.Compare)
					if !slices.Equal(got, want) {
						t.Errorf("packets lost on the way to %v, want %v", got, want)
					}
				})
			}
		}
	}
}

// TestPacketsOfUnwatchedPortsAreNotLookedUp: nearly all packets that a node drops belong to no
// target, and in a flood each lookup counts. Lookups can't be observed, so the test keeps the
// target but clears its port in the bitmap.
func TestPacketsOfUnwatchedPortsAreNotLookedUp(t *testing.T) {
	k := testKernel(t)
	n := newTestNet(t)
	to := netip.MustParseAddrPort("127.0.0.1:4711")
	l := watch(t, k, NewSockTargetKey(n.inode, to.Addr(), to.Port()))
	needsDropReasons(t, l)
	config := l.maps[SockfailMapConfig]
	var c SockConfig
	if err := config.Lookup(uint32(0), &c); err != nil {
		t.Fatal(err)
	}
	watched := c.Ports
	for _, answer := range []bool{false, true} {
		for _, known := range []bool{false, true} {
			t.Run(fmt.Sprintf("answer=%v/port in the bitmap=%v", answer, known), func(t *testing.T) {
				c.Ports = [len(c.Ports)]uint64{}
				if known {
					c.Ports = watched
				}
				if err := config.Put(uint32(0), &c); err != nil {
					t.Fatal(err)
				}
				n.droppedSYN(t, to, answer)
				if got := marked(t, l, n.inode); (len(got) > 0) != known {
					t.Errorf("packets lost on the way to %v", got)
				}
			})
		}
	}
}
