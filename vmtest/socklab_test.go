package vmtest

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// sockFamily holds what differs between the IP versions.
type sockFamily struct {
	suffix  string // suffix of a row's name
	v6      bool
	pair    uint8  // number of netlab's pair
	bits    string // prefix length of netlab's subnet
	gateway string // the target's end of netlab's pair
	absent  string // an unused address of the same subnet
	far     string // an address behind the target's end
	farNet  string // its subnet, without a route
}

// ipv4 returns the IPv4 addresses in netlab's n-th pair of networks.
func ipv4(n uint8) sockFamily {
	at := func(subnet, host uint8) string { return fmt.Sprintf("10.%d.%d.%d", subnet, n, host) }
	return sockFamily{pair: n, bits: "/24", gateway: at(97, 2), absent: at(97, 77), far: at(99, 1), farNet: at(99, 0) + "/24"}
}

// ipv6 returns the IPv6 addresses in netlab's n-th pair of networks.
func ipv6(n uint8) sockFamily {
	at := func(subnet, host uint8) string { return fmt.Sprintf("fd%d:%d::%d", subnet, n, host) }
	return sockFamily{
		v6: true, suffix: "-ipv6",
		pair: n, bits: "/64", gateway: at(97, 2), absent: at(97, 77), far: at(99, 1), farNet: at(99, 0) + "/64",
	}
}

// address returns an address with the port of all targets here.
func address(addr string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(addr), 80) }

// sockModules loads the modules that rows need, if the kernel has them. It must run before the
// agent reads the kernel's symbols, which it rereads only once a minute.
func sockModules(t *testing.T) {
	t.Helper()
	for option, name := range map[string]string{
		"CONFIG_NF_TABLES": "nf_tables", "CONFIG_NFT_REJECT_INET": "nft_reject_inet",
		"CONFIG_NET_SCH_INGRESS": "sch_ingress", "CONFIG_NET_CLS_BPF": "cls_bpf",
	} {
		has, err := kernelConfig(option)
		if err != nil {
			t.Fatal(err)
		}
		if has {
			command(t, "modprobe", name)
		}
	}
}

// sockLab is the environment of one row's fault: a prober's network and a target's.
type sockLab struct {
	sockFamily
	t              *testing.T
	agent          *agenttest.Agent
	from           int // number of entries before the row, which are not the row's
	prober, target *netlab.Net
	name           string         // of the row and of the target
	at             netip.AddrPort // address that is probed
	reasons        []string       // reasons that this kernel gives for dropped packets

	// Set by a fault, for ending it.
	listener net.Listener
	queued   net.Conn // fills the listener's queue
	mend     func()
}

// newSockLab creates the networks; they work, and nothing listens in them yet.
func newSockLab(t *testing.T, a *agenttest.Agent, kernel *bpf.Kernel, family sockFamily) *sockLab {
	t.Helper()
	l := &sockLab{sockFamily: family, t: t, agent: a, from: len(a.Entries())}
	l.prober, l.target = netlab.PairIn(t, family.pair)
	// ICMP errors are limited by namespace and, in bursts, for the whole machine. Neither applies to
	// messages that the mask omits.
	l.target.Sysctl("net/ipv4/icmp_ratemask", "0")
	l.target.Sysctl("net/ipv6/icmp/ratemask", "255") // a type that no error has
	// Kernels without the enum (before v5.17) report no reasons.
	names, err := kernel.EnumNames("skb_drop_reason")
	if err != nil {
		t.Log("the kernel gives no reasons for drops:", err)
	}
	for _, name := range names {
		l.reasons = append(l.reasons, name)
	}
	return l
}

// gives reports whether the kernel can report a reason for dropped packets.
func (l *sockLab) gives(reason string) bool {
	return slices.Contains(l.reasons, "SKB_DROP_REASON_"+reason)
}

// listen creates a listener at the target that does not accept.
func (l *sockLab) listen(backlog int) { l.listener = l.target.Listen(l.at.String(), backlog) }

// serve handles the target's connections with fn.
func (l *sockLab) serve(fn func(net.Conn)) { l.listener = l.target.Serve(l.at.String(), fn) }

// accept makes the listener accept and respond.
func (l *sockLab) accept() { l.target.Accept(l.listener, netlab.Echo) }

// drain calls accept and waits until the queue has room.
func (l *sockLab) drain() {
	l.t.Helper()
	l.accept()
	if err := l.queued.SetDeadline(time.Now().Add(testenv.Within(sockLimit))); err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.queued.Write([]byte("ping")); err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.queued.Read(make([]byte, 1)); err != nil {
		l.t.Fatal("the connection in the queue is not accepted: ", err)
	}
}

// replace replaces the listener by a server that responds.
func (l *sockLab) replace() {
	if err := l.listener.Close(); err != nil {
		l.t.Fatal(err)
	}
	l.serve(netlab.Echo)
}

// settle gives the target its missing address and a server that responds there.
func (l *sockLab) settle() {
	l.target.AddAddress(l.at.Addr().String() + l.bits)
	l.serve(netlab.Echo)
}

// nft adds a chain with one rule at a hook to a network, until mend is called.
func (l *sockLab) nft(n *netlab.Net, hook, rule string) {
	l.t.Helper()
	needConfig(l.t, "CONFIG_NF_TABLES")
	needConfig(l.t, "CONFIG_NFT_REJECT_INET")
	n.Command("nft", "table inet fault { chain fault { type filter hook "+hook+" priority 0; tcp dport 80 "+rule+"; }; }")
	l.mend = func() { n.Command("nft", "delete table inet fault") }
}

// forbid makes a network policy reject every connect() to the target, until mend is called.
func (l *sockLab) forbid() {
	l.t.Helper()
	root := cgroupRoot
	if bootedV1() {
		root = unifiedRoot
	}
	l.mend = netlab.Forbid(l.t, root, l.at.Addr())
}
