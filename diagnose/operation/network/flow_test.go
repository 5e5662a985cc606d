package network

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/display"
)

func TestNetDecode(t *testing.T) {
	protocols := map[byte]uint16{4: unix.ETH_P_IP, 6: unix.ETH_P_IPV6, 0: unix.ETH_P_ARP}
	for name, want := range map[string]string{
		"tcp":          "tcp 10.0.0.1:4000 > 10.0.0.2:80 SYN seq 0 length 12",
		"tcp back":     "tcp 10.0.0.2:80 > 10.0.0.1:4000 SYN seq 0 length 0",
		"udp":          "udp 10.0.0.2:80 > 10.0.0.9:53 length 1",
		"fragment":     "fragment of udp 10.0.0.1:0 > 10.0.0.2:0 length 4",
		"ping":         "icmp 10.0.0.1 > 10.0.0.2 EchoRequest",
		"unreachable":  "icmp 10.0.0.9 > 10.0.0.1 DestinationUnreachable(Host) of tcp 10.0.0.1:4000 > 10.0.0.2:80",
		"tcp6":         "tcp [fd00::1]:4000 > [fd00::2]:80 SYN seq 0 length 0",
		"unreachable6": "icmp fd00::9 > fd00::1 DestinationUnreachable(AddressUnreachable) of tcp [fd00::1]:4000 > [fd00::2]:80",
		"arp":          "ARP who-has 10.0.0.2 tell 10.0.0.1",
		"short":        "undecodable packet",
	} {
		data := testPackets(t)[name]
		d, ok := decode(protocols[data[0]>>4], data)
		if d.text != want || ok == (name == "short") {
			t.Errorf("%s: %q, want %q", name, d.text, want)
		}
		if strings.Contains(string(data[:d.headers]), "secret") {
			t.Errorf("%s: %d bytes are taken for headers", name, d.headers)
		}
	}
	// IPv6 with a hop-by-hop header before ICMPv6, as sent by a real kernel.
	report := []byte{0x60, 0, 0, 0, 0, 36, 0, 1, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16,
		0x3a, 0, 5, 2, 0, 0, 1, 0, 0x8f, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 1}
	if d, ok := decode(unix.ETH_P_IPV6, report); !ok || d.protocol != unix.IPPROTO_ICMPV6 || d.text != "icmp fe80::1 > ff02::16 143(0)" || d.headers != len(report) {
		t.Errorf("%+v", d)
	}
	if d, ok := decode(0x88cc, []byte{2, 7}); ok || d.text != "EtherType 0x88cc" {
		t.Errorf("%+v", d)
	}
}

// talk adds segments of a conversation: each is like "> SYN 100", "< SYN,ACK 500" or "> ACK 101
// 12", with a sequence number and a length.
func talk(t testing.TB, s *summary, segments ...string) {
	t.Helper()
	at := time.Unix(1000, 0)
	for _, text := range segments {
		var way, flags string
		var seq, size int
		if n, _ := fmt.Sscan(text, &way, &flags, &seq, &size); n < 3 {
			t.Fatalf("segment %q", text)
		}
		ip, tcp := iP4("10.0.0.1", "10.0.0.2", layers.IPProtocolTCP), tcpHeaderOf(4000, 80)
		if way == "<" {
			ip, tcp = iP4("10.0.0.2", "10.0.0.1", layers.IPProtocolTCP), tcpHeaderOf(80, 4000)
		}
		tcp.Seq = uint32(seq)
		for name, bit := range map[string]*bool{"SYN": &tcp.SYN, "ACK": &tcp.ACK, "RST": &tcp.RST, "FIN": &tcp.FIN} {
			*bit = strings.Contains(flags, name)
		}
		at = at.Add(time.Millisecond)
		s.add(&packet{at: at, link: 2, protocol: unix.ETH_P_IP, data: packetOf(t, ip, tcp, gopacket.Payload(make([]byte, size)))})
	}
}

func TestNetFlow(t *testing.T) {
	const flow = "tcp 10.0.0.1:4000 > 10.0.0.2:80 on eth0: "
	for name, c := range map[string]struct {
		segments []string
		want     string
	}{
		"answered":            {[]string{"> SYN 100", "< SYN,ACK 500", "> ACK 101", "> ACK 101 12", "< ACK 501 7", "> FIN,ACK 113", "< FIN,ACK 508"}, "4/3 packets, 12/7 bytes, 1 SYN, 1 SYN-ACK, 2 FIN, handshake 2ms"},
		"refused":             {[]string{"> SYN 100", "< RST,ACK 0"}, "1/1 packets, 0/0 bytes, 1 SYN, 1 RST received"},
		"unanswered":          {[]string{"> SYN 100", "> SYN 100", "> SYN 100"}, "3/0 packets, 0/0 bytes, 3 SYN, 2 sent again, SYN unanswered"},
		"answered late":       {[]string{"> SYN 100", "> SYN 100", "< SYN,ACK 500", "> ACK 101"}, "3/1 packets, 0/0 bytes, 2 SYN, 1 SYN-ACK, 1 sent again"},
		"last ACK ignored":    {[]string{"> SYN 100", "< SYN,ACK 500", "> ACK 101", "< SYN,ACK 500"}, "2/2 packets, 0/0 bytes, 1 SYN, 2 SYN-ACK, 1 received again"},
		"sent again":          {[]string{"> ACK 101 12", "> ACK 113 5", "> ACK 101 12", "< ACK 501"}, "3/1 packets, 29/0 bytes, 1 sent again"},
		"around zero":         {[]string{"> ACK 4294967290 12", "> ACK 6 5", "> ACK 4294967290 12"}, "3/0 packets, 29/0 bytes, 1 sent again"},
		"ports used again":    {[]string{"> SYN 100", "< RST,ACK 0", "> SYN 90", "< SYN,ACK 7", "> ACK 91"}, "3/2 packets, 0/0 bytes, 2 SYN, 1 SYN-ACK, 1 RST received, handshake 2ms"},
		"begun in the midst":  {[]string{"< ACK 500 9", "> SYN 100", "< SYN,ACK 700", "> ACK 101"}, "2/2 packets, 0/9 bytes, 1 SYN, 1 SYN-ACK, handshake 2ms"},
		"reset by the opener": {[]string{"> SYN 100", "< SYN,ACK 500", "> RST 101"}, "2/1 packets, 0/0 bytes, 1 SYN, 1 SYN-ACK, 1 RST sent"},
	} {
		s := newNetSummary(map[int]string{2: "eth0"})
		talk(t, s, c.segments...)
		if len(s.order) != 1 || s.order[0].String() != flow+c.want {
			t.Errorf("%s: %v\nwant %s", name, s.order, flow+c.want)
		}
	}
	s := newNetSummary(nil)
	talk(t, s, "> SYN 100")
	s.add(&packet{link: 2, protocol: unix.ETH_P_IP, data: testPackets(t)["unreachable"]})
	if got := s.order[0].String(); !strings.HasSuffix(got, "on device 2: 1/0 packets, 0/0 bytes, 1 SYN, SYN unanswered, 1× ICMP DestinationUnreachable(Host) from 10.0.0.9") {
		t.Error(got)
	}
}

// The memory of a summary is bounded for any packets.
func TestNetSummaryIsBounded(t *testing.T) {
	s := newNetSummary(nil)
	for i := range maxFlows + 10 {
		ip := iP4("10.0.0.1", "10.0.0.2", layers.IPProtocolTCP)
		s.add(&packet{protocol: unix.ETH_P_IP, data: packetOf(t, ip, tcpHeaderOf(layers.TCPPort(i), 80))})
	}
	if len(s.flows) != maxFlows || s.overFlows != 10 || len(s.lines) != maxLines || s.packets != maxFlows+10 {
		t.Errorf("%d flows, %d over, %d lines", len(s.flows), s.overFlows, len(s.lines))
	}
}

func FuzzNetDecode(f *testing.F) {
	for _, p := range testPackets(f) {
		f.Add(p, uint16(unix.ETH_P_IP))
		f.Add(p, uint16(unix.ETH_P_IPV6))
		f.Add(p, uint16(unix.ETH_P_ARP))
	}
	s := newNetSummary(map[int]string{})
	f.Fuzz(func(t *testing.T, data []byte, protocol uint16) {
		d, _ := decode(protocol, data)
		if d.headers < 0 || d.headers > len(data) || d.payload < 0 || display.Safe(d.text, len(d.text)) != d.text {
			t.Errorf("%+v", d)
		}
		if len(s.order) > 100 {
			s = newNetSummary(map[int]string{})
		}
		s.add(&packet{data: data, protocol: protocol})
	})
}
