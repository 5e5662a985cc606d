package network

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// packetOf returns a packet made from its layers, starting with the network header.
func packetOf(t testing.TB, stack ...gopacket.SerializableLayer) []byte {
	t.Helper()
	for i := range stack {
		if n, ok := stack[i].(gopacket.NetworkLayer); ok && i+1 < len(stack) {
			if c, ok := stack[i+1].(interface {
				SetNetworkLayerForChecksum(l gopacket.NetworkLayer) error
			}); ok {
				if err := c.SetNetworkLayerForChecksum(n); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func iP4(from, to string, p layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: p, SrcIP: net.ParseIP(from).To4(), DstIP: net.ParseIP(to).To4()}
}

func iP6(from, to string, p layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: p, SrcIP: net.ParseIP(from), DstIP: net.ParseIP(to)}
}

func tcpHeaderOf(from, to layers.TCPPort) *layers.TCP {
	return &layers.TCP{SrcPort: from, DstPort: to, SYN: true, Window: 1000}
}

// testPackets returns one packet of each kind, by name.
func testPackets(t testing.TB) map[string][]byte {
	const a, b, router, a6, b6 = "10.0.0.1", "10.0.0.2", "10.0.0.9", "fd00::1", "fd00::2"
	options := iP4(b, a, layers.IPProtocolTCP)
	options.Options = []layers.IPv4Option{{OptionType: 7, OptionLength: 8, OptionData: make([]byte, 6)}}
	fragment := iP4(a, b, layers.IPProtocolUDP)
	fragment.FragOffset = 100
	quoted := packetOf(t, iP4(a, b, layers.IPProtocolTCP), tcpHeaderOf(4000, 80))
	quoted6 := packetOf(t, iP6(a6, b6, layers.IPProtocolTCP), tcpHeaderOf(4000, 80))
	unreachable := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeHost)}
	return map[string][]byte{
		"tcp":         packetOf(t, iP4(a, b, layers.IPProtocolTCP), tcpHeaderOf(4000, 80), gopacket.Payload("GET / secret")),
		"tcp back":    packetOf(t, options, tcpHeaderOf(80, 4000)),
		"tcp other":   packetOf(t, iP4(a, router, layers.IPProtocolTCP), tcpHeaderOf(4000, 81)),
		"udp":         packetOf(t, iP4(b, router, layers.IPProtocolUDP), &layers.UDP{SrcPort: 80, DstPort: 53}, gopacket.Payload("x")),
		"fragment":    packetOf(t, fragment, gopacket.Payload("\x0f\xa0\x00\x50")),
		"ping":        packetOf(t, iP4(a, b, layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0)}, gopacket.Payload("secret")),
		"unreachable": packetOf(t, iP4(router, a, layers.IPProtocolICMPv4), unreachable, gopacket.Payload(quoted)),
		"tcp6":        packetOf(t, iP6(a6, b6, layers.IPProtocolTCP), tcpHeaderOf(4000, 80)),
		"udp6":        packetOf(t, iP6(b6, "fd00::9", layers.IPProtocolUDP), &layers.UDP{SrcPort: 53, DstPort: 99}),
		"unreachable6": packetOf(t, iP6("fd00::9", a6, layers.IPProtocolICMPv6),
			&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeDestinationUnreachable, 3)}, gopacket.Payload("\x00\x00\x00\x00"+string(quoted6))),
		"ping6": packetOf(t, iP6(a6, b6, layers.IPProtocolICMPv6), &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeEchoRequest, 0)}, gopacket.Payload("\x00\x01\x00\x01")),
		"arp": packetOf(t, &layers.ARP{
			AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: layers.ARPRequest,
			SourceHwAddress: make([]byte, 6), SourceProtAddress: net.ParseIP(a).To4(), DstHwAddress: make([]byte, 6), DstProtAddress: net.ParseIP(b).To4(),
		}),
		"short": {0x45, 0},
	}
}

func TestNetFilter(t *testing.T) {
	packets := testPackets(t)
	const snaplen = 128
	for name, c := range map[string]struct {
		filter filter
		takes  []string
	}{
		"all":                {filter{}, []string{"tcp", "tcp back", "tcp other", "udp", "fragment", "ping", "unreachable", "tcp6", "udp6", "unreachable6", "ping6", "arp", "short"}},
		"address":            {filter{address: netip.MustParseAddr("10.0.0.2")}, []string{"tcp", "tcp back", "udp", "fragment", "ping", "unreachable", "arp"}},
		"address and port":   {filter{address: netip.MustParseAddr("10.0.0.2"), port: 80}, []string{"tcp", "tcp back", "udp", "unreachable"}},
		"all three":          {filter{address: netip.MustParseAddr("10.0.0.2"), port: 80, protocol: unix.IPPROTO_TCP}, []string{"tcp", "tcp back", "unreachable"}},
		"another port":       {filter{address: netip.MustParseAddr("10.0.0.2"), port: 81}, nil},
		"port":               {filter{port: 80}, []string{"tcp", "tcp back", "udp", "unreachable", "tcp6", "unreachable6"}},
		"tcp":                {filter{protocol: unix.IPPROTO_TCP}, []string{"tcp", "tcp back", "tcp other", "unreachable", "tcp6", "unreachable6"}},
		"udp":                {filter{protocol: unix.IPPROTO_UDP}, []string{"udp", "fragment", "udp6"}},
		"icmp":               {filter{protocol: unix.IPPROTO_ICMP}, []string{"ping", "unreachable", "unreachable6", "ping6"}},
		"icmp of an address": {filter{protocol: unix.IPPROTO_ICMP, address: netip.MustParseAddr("10.0.0.9")}, []string{"unreachable"}},
		"IPv6 address":       {filter{address: netip.MustParseAddr("fd00::2")}, []string{"tcp6", "udp6", "unreachable6", "ping6"}},
		"IPv6, all three":    {filter{address: netip.MustParseAddr("fd00::2"), port: 80, protocol: unix.IPPROTO_TCP}, []string{"tcp6", "unreachable6"}},
		"IPv6 udp":           {filter{address: netip.MustParseAddr("fd00::2"), port: 99, protocol: unix.IPPROTO_UDP}, []string{"udp6"}},
		"another IPv6":       {filter{address: netip.MustParseAddr("fd00::3")}, nil},
	} {
		program, err := c.filter.program(snaplen)
		if err != nil {
			t.Fatal(name, err)
		}
		if raw, err := bpf.Assemble(program); err != nil || len(raw) > unix.BPF_MAXINSNS {
			t.Fatal(name, err)
		}
		vm, err := bpf.NewVM(program)
		if err != nil {
			t.Fatal(name, err)
		}
		want := map[string]bool{}
		for _, p := range c.takes {
			want[p] = true
		}
		for packet, data := range packets {
			got, err := vm.Run(data)
			if err != nil || (got > 0) != want[packet] {
				t.Errorf("%s (%s): %s: %d, %v", name, c.filter, packet, got, err)
			}
		}
	}
}

// For all filters and packets: a packet is captured if the packet itself, or the one that an ICMP
// error quotes, has the address, port and protocol.
func TestNetFilterAgrees(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(n int) int { return r.IntN(n) }
	hosts := map[bool][]string{false: {"10.0.0.1", "10.0.0.2", "10.0.1.1"}, true: {"fd00::1", "fd00::2", "fd00:0:0:1::1"}}
	ports := []uint16{80, 81, 4000}
	for range 5000 {
		six := pick(2) == 0
		from, to := hosts[six][pick(3)], hosts[six][pick(3)]
		sport, dport := ports[pick(3)], ports[pick(3)]
		protocol := []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP}[pick(2)]
		header := func(from, to string, p layers.IPProtocol) gopacket.SerializableLayer {
			if six {
				return iP6(from, to, p)
			}
			return iP4(from, to, p)
		}
		var transport gopacket.SerializableLayer = tcpHeaderOf(layers.TCPPort(sport), layers.TCPPort(dport))
		if protocol == unix.IPPROTO_UDP {
			transport = &layers.UDP{SrcPort: layers.UDPPort(sport), DstPort: layers.UDPPort(dport)}
		}
		data := packetOf(t, header(from, to, layers.IPProtocol(protocol)), transport)
		quoted, router := pick(3) == 0, hosts[six][pick(3)]
		switch {
		case quoted && six:
			data = packetOf(t, iP6(router, from, layers.IPProtocolICMPv6),
				&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeDestinationUnreachable, 0)}, gopacket.Payload("\x00\x00\x00\x00"+string(data)))
		case quoted:
			ip := iP4(router, from, layers.IPProtocolICMPv4)
			if pick(2) == 0 {
				ip.Options = []layers.IPv4Option{{OptionType: 7, OptionLength: 4, OptionData: make([]byte, 2)}}
			}
			data = packetOf(t, ip, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, 0)}, gopacket.Payload(data))
		}
		var f filter
		if pick(2) == 0 {
			f.address = netip.MustParseAddr(hosts[pick(4) == 0 != six][pick(3)])
		}
		if pick(2) == 0 {
			f.port = ports[pick(3)]
		}
		f.protocol = []uint8{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP}[pick(3)]

		has := func(addresses ...string) bool {
			return !f.address.IsValid() || slices.Contains(addresses, f.address.String())
		}
		want := has(from, to) && (f.port == 0 || f.port == sport || f.port == dport) && (f.protocol == 0 || f.protocol == protocol)
		// Without port and protocol, the error itself may match.
		want = want || quoted && f.port == 0 && f.protocol == 0 && has(router, from)
		program, err := f.program(1)
		if err != nil {
			t.Fatal(err)
		}
		vm, err := bpf.NewVM(program)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := vm.Run(data); err != nil || (got > 0) != want {
			t.Fatalf("%s of protocol %d %s:%d > %s:%d (quoted %v by %s): %d, %v", f, protocol, from, sport, to, dport, quoted, router, got, err)
		}
	}
}

func TestNetFilterText(t *testing.T) {
	if got := (filter{address: netip.MustParseAddr("10.0.0.2"), port: 80, protocol: unix.IPPROTO_TCP}).String(); got != "tcp host 10.0.0.2 port 80" {
		t.Error(got)
	}
	if got := (filter{}).String(); got != "all packets" {
		t.Error(got)
	}
}
