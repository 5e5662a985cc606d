package netlook

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

const answers = time.Second

// A thread that ends between the two accesses to it must not prevent the lookup: any process of
// the namespace can be used.
func TestOpenerGone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to enter a namespace")
	}
	own, err := hostfs.New("/").NetNS(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	fs := hostfs.New(t.TempDir())
	link := fmt.Sprintf("net:[%d]", own)
	for _, pid := range []string{"7", "9"} {
		ns := fs.Path("/proc/" + pid + "/ns")
		if err := errors.Join(os.MkdirAll(ns, 0o755), os.Symlink(link, filepath.Join(ns, "net"))); err != nil {
			t.Fatal(err)
		}
	}
	// The link of 7 can be read, but not opened any more.
	if err := os.Symlink("/proc/self/ns/net", fs.Path("/proc/9/ns/"+link)); err != nil {
		t.Fatal(err)
	}
	n := NewNamespaces(fs, answers)
	n.list = []hostfs.NetNamespace{{Inode: own, PID: 9}}
	v, err := n.Open(own, 7)
	if err != nil {
		t.Fatal(err)
	}
	v.Close()
}

func view(t *testing.T, n *netlab.Net) *View {
	t.Helper()
	v, err := NewNamespaces(hostfs.New("/"), answers).Open(n.Inode, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

// The kernel's data about real sockets, at both ends.
func TestSockets(t *testing.T) {
	prober, target := netlab.PairIn(t, 32)
	target.Listen("[::]:80", 5)
	target.Listen("10.97.32.2:81", 5)
	c := prober.Dial("10.97.32.2:80")
	if _, err := c.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	v := view(t, target)
	var listens, waiting *Socket
	testenv.UntilShown(t, "the bytes are on their way", answers, func() (bool, string) {
		listens, waiting = nil, nil
		all, err := v.Sockets(AllStates, 80, true, func(s *Socket) {
			kept := *s
			switch s.State {
			case Listen:
				listens = &kept
			case Established:
				waiting = &kept
			}
		})
		if err != nil || !all {
			t.Fatal(all, err)
		}
		return waiting != nil && waiting.RQueue == 4, fmt.Sprintf("%+v", waiting)
	})
	if listens == nil || listens.RQueue != 1 || listens.WQueue != 5 || listens.Inode == 0 || listens.V6Only {
		t.Errorf("listener %+v", listens)
	}
	// An IPv4 connection of an IPv6 socket.
	if waiting == nil || waiting.Inode != 0 || waiting.RQueue != 4 || waiting.Remote.String() != c.LocalAddr().String() || !waiting.HasInfo || waiting.Info.Bytes_received != 4 || waiting.Info.Rcv_mss < 500 {
		t.Errorf("connection %+v of %s", waiting, c.LocalAddr())
	}
	at, from := netip.MustParseAddrPort("10.97.32.2:80"), netip.MustParseAddrPort(c.LocalAddr().String())
	if s, err := v.Connection(at, from); err != nil || s == nil || s.State != Established || s.Info.Bytes_received != 4 {
		t.Errorf("the connection from %s: %+v, %v", from, s, err)
	}
	if s, err := v.Connection(netip.MustParseAddrPort("10.97.32.9:80"), from); err != nil || s != nil {
		t.Errorf("a connection to another address: %+v, %v", s, err)
	}
	if l := v.Listener(at); !l.Present || l.String() != "queue 1/5" || l.Full() {
		t.Errorf("listener %+v", l)
	}
	var own *Socket
	if _, err := view(t, prober).Sockets(1<<Established, 0, true, func(s *Socket) { kept := *s; own = &kept }); err != nil {
		t.Fatal(err)
	}
	if own == nil || own.Inode == 0 || own.Remote.Port() != 80 {
		t.Errorf("the prober's end %+v", own)
	}
}

// What listens where a connection is refused: each listener once, loopback distinguished, bounded.
func TestListeningAt(t *testing.T) {
	_, target := netlab.PairIn(t, 32)
	at := netip.MustParseAddr("10.97.32.2")
	v := view(t, target)
	if l := v.ListeningAt(at, 8); !l.Known || len(l.At) != 0 {
		t.Errorf("nothing listens: %+v", l)
	}
	for _, addr := range []string{"[::]:9090", "10.97.32.2:81", "127.0.0.1:80", "[::1]:80", "[fd97:32::2]:7", "10.97.32.2:443"} {
		target.Listen(addr, 1)
	}
	want := []string{"127.0.0.1:80", "[::1]:80", ":81", ":443", ":9090"}
	if l := v.ListeningAt(at, 8); !l.Known || !slices.Equal(l.At, want) || l.More != 0 {
		t.Errorf("%+v, want %v", l, want)
	}
	if l := v.ListeningAt(at, 2); !slices.Equal(l.At, want[:2]) || l.More != 3 {
		t.Errorf("two of them: %+v", l)
	}
	if l := v.ListeningAt(netip.MustParseAddr("fd97:32::2"), 8); !slices.Equal(l.At, []string{":7", "127.0.0.1:80", "[::1]:80", ":9090"}) {
		t.Errorf("by IPv6: %+v", l)
	}
}

func TestConntrack(t *testing.T) {
	fs := hostfs.New(t.TempDir())
	own, err := hostfs.New("/").NetNS(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	n := NewNamespaces(fs, answers)
	if c := n.Conntrack(own, 0); c.Known || c.Full() {
		t.Errorf("nothing is tracked: %+v", c)
	}
	dir := fs.Path("/proc/sys/net/netfilter")
	for count, full := range map[string]bool{"259000": false, "260000": true, "262150": true} {
		if err := errors.Join(os.MkdirAll(dir, 0o755),
			os.WriteFile(filepath.Join(dir, "nf_conntrack_count"), []byte(count+"\n"), 0o600),
			os.WriteFile(filepath.Join(dir, "nf_conntrack_max"), []byte("262144\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		if c := n.Conntrack(own, 0); !c.Known || c.Full() != full || c.String() != count+" of 262144 connections tracked" {
			t.Errorf("%s: %+v", count, c)
		}
	}
	if c := n.Conntrack(own+1, os.Getpid()); c.Known {
		t.Errorf("of a namespace without a process: %+v", c)
	}
}

// An address is found in the one namespace that has it, and only there.
func TestHome(t *testing.T) {
	prober, target := netlab.PairIn(t, 32)
	n := NewNamespaces(hostfs.New("/"), answers)
	end := time.Now().Add(testenv.Within(10 * time.Second))
	if h := n.Home(netip.MustParseAddr("10.97.32.2"), end); h.Inode != target.Inode || !h.Whole {
		t.Errorf("found %+v, want %d", h, target.Inode)
	}
	if h := n.Home(netip.MustParseAddr("10.97.32.77"), end); h != (Home{Whole: true}) {
		t.Errorf("found %+v", h)
	}
	prober.AddAddress("10.97.32.2/32")
	if h := n.Home(netip.MustParseAddr("10.97.32.2"), end); h.Inode != 0 || !h.Several {
		t.Errorf("found %+v", h)
	}
	if h := n.Home(netip.MustParseAddr("10.97.32.2"), time.Now().Add(-time.Second)); h != (Home{}) {
		t.Errorf("found without time %+v", h)
	}
	// More namespaces than are listed, and a /proc that can't be listed.
	cut := NewNamespaces(hostfs.New("/"), answers)
	cut.most = 1
	for name, n := range map[string]*Namespaces{"a cut list": cut, "no list": NewNamespaces(hostfs.New(t.TempDir()), answers)} {
		if h := n.Home(netip.MustParseAddr("10.97.32.77"), end); h != (Home{}) {
			t.Errorf("%s: %+v, which says that no namespace has it", name, h)
		}
	}
}

func TestRouteAndNeighbor(t *testing.T) {
	prober, target := netlab.PairIn(t, 32)
	prober.AddRouteVia("10.98.0.0/24", "10.97.32.2")
	v := view(t, prober)
	r := v.RouteTo(netip.MustParseAddr("10.98.0.1"))
	if !r.Known || r.Via.String() != "10.97.32.2" || r.Source.String() != "10.97.32.1" || r.Table != unix.RT_TABLE_MAIN || r.Local {
		t.Errorf("route %+v", r)
	}
	target.Listen("10.97.32.2:80", 1)
	prober.Dial("10.97.32.2:80")
	if n := v.Neighbor(&r); !n.Known || n.Address == "" || n.Failed || n.Trying {
		t.Errorf("neighbour %+v", n)
	}
	has, err := v.Has(netip.MustParseAddr("10.97.32.1"))
	if r := v.RouteTo(netip.MustParseAddr("10.97.32.1")); !r.Local || !has || err != nil {
		t.Errorf("route to itself %+v", r)
	}
}

// A function runs in the namespace, and its thread is moved back afterwards.
func TestWithin(t *testing.T) {
	n := netlab.New(t)
	fs := hostfs.New("/")
	in := func() uint32 {
		var st unix.Stat_t
		if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
			t.Error(err)
		}
		return uint32(st.Ino)
	}
	own := in()
	pid := NewNamespaces(fs, answers).Process(n.Inode)
	fault := errors.New("fault")
	err := Within(fs, n.Inode, pid, func() error {
		if got := in(); got != n.Inode {
			t.Errorf("in %d, want %d", got, n.Inode)
		}
		return fault
	})
	if !errors.Is(err, fault) || in() != own {
		t.Errorf("%v, then in %d", err, in())
	}
	if err := Within(fs, own, pid, func() error { return nil }); err == nil {
		t.Error("entered the namespace of a process that is elsewhere")
	}
	if err := Within(fs, n.Inode, 0, func() error { return nil }); err == nil {
		t.Error("entered a namespace without a process")
	}
}

func TestStateNames(t *testing.T) {
	for s, want := range map[State]string{Established: "ESTABLISHED", SynRecv: "SYN_RECV", Listen: "LISTEN", 12: "NEW_SYN_RECV", 0: "STATE_0", 77: "STATE_77"} {
		if got := s.String(); got != want {
			t.Errorf("%d: %s, want %s", s, got, want)
		}
	}
}

func FuzzParseDiag(f *testing.F) {
	f.Add(make([]byte, diagMessageLen))
	f.Add(append(make([]byte, diagMessageLen), 5, 0, diagAttrV6Only, 0, 1))
	f.Add(append(make([]byte, diagMessageLen), 8, 0, diagAttrInfo, 0, 1, 2, 3, 4))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, ok := parseDiag(b); ok != (len(b) >= diagMessageLen) {
			t.Errorf("%d bytes: %v", len(b), ok)
		}
	})
}
