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

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// device is the name of a pair's device at both ends.
const device = "probe0"

// Pair is PairIn with n = 31, for tests that need only one pair at a time.
func Pair(t testing.TB) (prober, target *Net) {
	t.Helper()
	return PairIn(t, 31)
}

// PairIn returns two namespaces connected by a veth pair that is ready to carry packets: the
// prober's with 10.97.n.1/24 and fd97:n::1/64, the target's with 10.97.n.2/24 and fd97:n::2/64. The
// target forwards packets. Pairs that exist at the same time on a machine, including those of
// packages tested in parallel, need different n, because code that searches the machine for an
// address must find only one.
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
		// The kernel may activate the queue up to a second after the carrier is up, and drops packets
		// until then.
		end.until("the pair carries packets", func() (bool, error) {
			l, err := netlink.LinkByName(device)
			return err == nil && l.Attrs().OperState == netlink.OperUp, err
		})
		end.AddAddress(fmt.Sprintf("10.97.%d.%d/24", n, i+1))
		end.AddAddress(fmt.Sprintf("fd97:%d::%d/64", n, i+1))
	}
	return prober, target
}

// until waits for an asynchronous change in the kernel, which takes a second at most, except on an
// emulated CPU. It calls ok in the namespace.
func (n *Net) until(what string, ok func() (bool, error)) {
	n.t.Helper()
	testenv.Until(n.t, what, 10*time.Second, func() (is bool) {
		n.In(func() (err error) { is, err = ok(); return err })
		return is
	})
}

// AddAddress adds an address, with its prefix length, to this end of the pair. The address is
// usable when AddAddress returns.
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
		return nil
	})
	// A worker makes an IPv6 address usable: a neighbour solicitation before that gets no answer and
	// is repeated only a second later.
	n.until(prefix+" is local", func() (bool, error) {
		routes, err := netlink.RouteGet(p.Addr().AsSlice())
		return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL, nil
	})
}

// Sysctl sets a setting of the namespace, given as a path below /proc/sys.
func (n *Net) Sysctl(path, value string) {
	n.t.Helper()
	if !strings.HasPrefix(path, "net/") {
		n.t.Fatalf("%s is not the namespace's own", path)
	}
	n.In(func() error { return os.WriteFile(filepath.Join("/proc/sys", path), []byte(value), 0) })
}
