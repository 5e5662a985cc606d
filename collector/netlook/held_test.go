package netlook

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// With mostBridges the lock is held for longer than any machine should need.
const mostBridges = 5000

// TestRTNLIsHeld checks that while the kernel holds rtnl_lock, a request that needs it is
// abandoned in time, one that does not need it is answered, and no more threads than allowed are
// abandoned.
func TestRTNLIsHeld(t *testing.T) {
	testenv.OnlyInTestAll(t) // other tests of this machine wait for the lock as well
	if os.Geteuid() != 0 {
		t.Skip("needs root to make network devices")
	}
	n := netlab.New(t)
	n.Listen("127.0.0.1:80", 5)
	const answer = 50 * time.Millisecond
	spaces := NewNamespaces(hostfs.New("/"), answer)
	to, before := netip.MustParseAddr("127.0.0.1"), calls.Stats()
	var longest time.Duration
	late, behind := 0, 0
	// This test may get no CPU while the lock is held.
	for bridges := 20; late == 0 || behind == 0; bridges *= 2 {
		if bridges > mostBridges {
			t.Fatalf("%d looks were given up, %d threads were left behind", late, behind)
		}
		held := n.HoldRTNL(bridges)
		began := time.Now()
		for held() {
			asked := time.Now()
			v, err := spaces.Open(n.Inode, 0)
			if err == nil {
				listener := v.Listener(netip.AddrPortFrom(to, 80))
				r := v.RouteTo(to)
				if r.Known && (!r.Local || !listener.Present) {
					t.Errorf("route %+v, listener %+v", r, listener)
				}
				if r.Known && r.Dev == "" {
					late++
				}
				v.Close()
			} else if !errors.Is(err, bounded.ErrLate) {
				t.Fatal(err)
			}
			longest = max(longest, time.Since(asked))
			behind = max(behind, calls.Stats().Behind)
		}
		hold, st := time.Since(began), calls.Stats()
		t.Logf("held for %v; the longest look took %v, %d were given up, %d threads were left behind, %d questions were refused", hold, longest, late, behind, st.Refused-before.Refused)
	}
	if behind > maxBehind {
		t.Errorf("%d threads were left behind", behind)
	}
	// Opening, the listener, the route and the device, each with twice the timeout.
	if limit := testenv.Within(8 * answer); longest > limit {
		t.Errorf("a look took %v, want at most %v", longest, limit)
	}
	testenv.Until(t, "the threads have returned", 20*time.Second, func() bool { return calls.Stats().Behind == 0 })
	v := view(t, n)
	if r := v.RouteTo(to); !r.Known || !r.Local || r.Dev != "lo" {
		t.Errorf("afterwards the route is %+v", r)
	}
}

// TestWithinNeedsNoRTNL checks that Within needs no deadline: neither entering and leaving the
// namespace nor what is done there waits for rtnl_lock.
func TestWithinNeedsNoRTNL(t *testing.T) {
	testenv.OnlyInTestAll(t)
	n := netlab.New(t)
	n.Serve("127.0.0.1:80", netlab.Echo)
	n.Serve("[::1]:80", netlab.Echo)
	fs := hostfs.New("/")
	pid := NewNamespaces(fs, answers).Process(n.Inode)
	dial := func(to string) func() error {
		return func() error {
			c, err := net.DialTimeout("tcp", to, 20*time.Second)
			if err == nil {
				err = c.Close()
			}
			return err
		}
	}
	steps := []struct {
		name string
		do   func() error
	}{
		{"enter and leave", func() error { return nil }},
		{"read what conntrack has", func() error {
			_, err := fs.Sysctl("net/netfilter/nf_conntrack_count")
			if errors.Is(err, os.ErrNotExist) { // not loaded
				return nil
			}
			return err
		}},
		{"read a device's setting", func() error { _, err := fs.Sysctl("net/ipv4/conf/lo/rp_filter"); return err }},
		{"connect by IPv4", dial("127.0.0.1:80")},
		{"connect by IPv6", dial("[::1]:80")},
		{"open and close a packet socket", func() error {
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			return errors.Join(unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: unix.ETH_P_ALL << 8}), unix.Close(fd))
		}},
	}
	longest := make([]time.Duration, len(steps))
	var waited time.Duration
	v := view(t, n)
	// The wait for the lock has to be longer than that for a CPU.
	for bridges := 100; waited < testenv.Within(500*time.Millisecond); bridges *= 2 {
		if bridges > mostBridges {
			t.Fatalf("a question that needs the lock waited for %v only", waited)
		}
		waited = 0
		clear(longest)
		held := n.HoldRTNL(bridges)
		over, asked := make(chan struct{}), make(chan struct{})
		go func() { // this does wait for the lock
			defer close(asked)
			for {
				select {
				case <-over:
					return
				default:
				}
				began := time.Now()
				if _, err := v.route.LinkList(); err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
					t.Error(err)
				}
				waited = max(waited, time.Since(began))
			}
		}()
		for held() {
			for i, s := range steps {
				began := time.Now()
				if err := Within(fs, n.Inode, pid, s.do); err != nil {
					t.Errorf("%s: %v", s.name, err)
				}
				longest[i] = max(longest[i], time.Since(began))
			}
		}
		close(over)
		<-asked
	}
	t.Logf("a question that needs the lock waited for %v", waited)
	for i, s := range steps {
		t.Logf("%s: %v at most", s.name, longest[i])
		if longest[i] > waited/2 {
			t.Errorf("%s took %v", s.name, longest[i])
		}
	}
}
