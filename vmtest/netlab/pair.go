package netlab

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/await"
)

// device is the name of a pair's device, at either end.
const device = "probe0"

// Pair is PairIn for tests that need but one pair at a time: its n is 31.
func Pair(t testing.TB) (prober, target *Net) {
	t.Helper()
	return PairIn(t, 31)
}

// PairIn returns two namespaces joined by a veth pair that carries packets
// already: a prober's with 10.97.n.1/24 and fd97:n::1/64, a target's with
// 10.97.n.2/24 and fd97:n::2/64. The target forwards packets. Pairs that are on a
// machine at the same time, also those of packages tested in parallel, need
// different n: who searches a machine for an address must find it only once.
func PairIn(t testing.TB, n uint8) (prober, target *Net) {
	t.Helper()
	prober, target = New(t), New(t)
	prober.In(func() error {
		veth := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: device}, PeerName: device, PeerNamespace: netlink.NsFd(target.ns),
		}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("add a veth pair: %w", err)
		}
		return nil
	})
	target.Sysctl("net/ipv4/ip_forward", "1")
	target.Sysctl("net/ipv6/conf/all/forwarding", "1")
	for _, end := range []*Net{prober, target} {
		end.In(func() error { return setUp(device) })
	}
	for i, end := range []*Net{prober, target} {
		end.In(func() error { return until(device+" to carry packets", carries) })
		end.AddAddress(fmt.Sprintf("10.97.%d.%d/24", n, i+1))
		end.AddAddress(fmt.Sprintf("fd97:%d::%d/64", n, i+1))
	}
	return prober, target
}

// until waits for what the kernel does in its own time: a second at most, but on
// an emulated CPU.
func until(what string, ok func() (bool, error)) error {
	limit := await.Within(10 * time.Second)
	for end := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		switch is, err := ok(); {
		case err != nil:
			return fmt.Errorf("wait for %s: %w", what, err)
		case is:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("waited %s for %s", limit, what)
		}
	}
}

// carries: the kernel may activate the queue up to a second after the carrier is
// there, and drops packets until then.
func carries() (bool, error) {
	l, err := netlink.LinkByName(device)
	return err == nil && l.Attrs().OperState == netlink.OperUp, err
}

// AddAddress gives the pair's device of this end one more address, with the
// length of its subnet. It can be used at once.
func (n *Net) AddAddress(prefix string) {
	n.t.Helper()
	p, err := netip.ParsePrefix(prefix)
	if err != nil {
		n.t.Fatal(err)
	}
	n.In(func() error {
		l, err := netlink.LinkByName(device)
		if err == nil {
			err = netlink.AddrAdd(l, &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD})
		}
		if err != nil {
			return fmt.Errorf("add address %s: %w", prefix, err)
		}
		// An IPv6 address is put to use by a worker: what asks for its neighbour
		// before that gets no answer, and asks again a second later.
		return until(prefix+" to be local", func() (bool, error) {
			routes, err := netlink.RouteGet(p.Addr().AsSlice())
			return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL, nil
		})
	})
}

// Sysctl sets a setting of the namespace, a path below /proc/sys.
func (n *Net) Sysctl(path, value string) {
	n.t.Helper()
	if !strings.HasPrefix(path, "net/") {
		n.t.Fatalf("%s is not the namespace's own", path)
	}
	n.In(func() error { return os.WriteFile(filepath.Join("/proc/sys", path), []byte(value), 0) })
}
