package network

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"golang.org/x/sys/unix"
)

// ends returns the addresses of an IP header, and the protocol of its payload; false if it is not
// an IP header, or truncated.
func ends(header gopacket.NetworkLayer) (from, to netip.Addr, protocol uint8, ok bool) {
	var source, destination []byte
	switch ip := header.(type) {
	case *layers.IPv4:
		source, destination, protocol = ip.SrcIP, ip.DstIP, uint8(ip.Protocol)
	case *layers.IPv6:
		source, destination, protocol = ip.SrcIP, ip.DstIP, uint8(ip.NextHeader)
	}
	from, ok1 := netip.AddrFromSlice(source)
	to, ok2 := netip.AddrFromSlice(destination)
	return from, to, protocol, ok1 && ok2
}

// decode reads the headers of a packet, which may be truncated anywhere.
func decode(protocol uint16, data []byte) (d decoded, ok bool) {
	var first gopacket.LayerType
	switch protocol {
	case unix.ETH_P_IP:
		first = layers.LayerTypeIPv4
	case unix.ETH_P_IPV6:
		first = layers.LayerTypeIPv6
	case unix.ETH_P_ARP:
		first = layers.LayerTypeARP
	default:
		d.text = fmt.Sprintf("EtherType %#04x", protocol)
		return d, false
	}
	packet, captured := gopacket.NewPacket(data, first, gopacket.DecodeOptions{Lazy: true, NoCopy: true}), len(data)
	header := packet.NetworkLayer()
	var from, to netip.Addr
	if from, to, d.protocol, ok = ends(header); !ok {
		if arp, isARP := packet.Layer(layers.LayerTypeARP).(*layers.ARP); isARP {
			d.headers, d.text = captured, arpText(arp)
			return d, true
		}
		d.text = "undecodable packet"
		return d, false
	}
	offset := len(header.LayerContents()) // start of the payload of the IP header
	total := 0                            // length of the packet
	switch ip := header.(type) {
	case *layers.IPv4:
		total = int(ip.Length)
		if ip.FragOffset != 0 {
			d.text = "fragment of "
		}
	case *layers.IPv6:
		total = int(ip.Length) + offset
	}
	var sport, dport uint16
	switch t := packet.TransportLayer().(type) {
	case *layers.TCP:
		d.tcp, sport, dport, d.protocol = t, uint16(t.SrcPort), uint16(t.DstPort), unix.IPPROTO_TCP
		offset = through(packet, t)
	case *layers.UDP:
		sport, dport, d.protocol = uint16(t.SrcPort), uint16(t.DstPort), unix.IPPROTO_UDP
		offset = through(packet, t)
	default:
		// It may also follow extension headers.
		icmp := packet.Layer(layers.LayerTypeICMPv6)
		if icmp != nil {
			d.protocol = unix.IPPROTO_ICMPV6
		} else if icmp = packet.Layer(layers.LayerTypeICMPv4); icmp != nil {
			d.protocol = unix.IPPROTO_ICMP
		}
		if icmp != nil {
			d.from, d.to = netip.AddrPortFrom(from, 0), netip.AddrPortFrom(to, 0)
			d.headers = min(through(packet, icmp)-len(icmp.LayerContents())+d.icmp(packet), captured)
			return d, true
		}
	}
	d.headers, d.payload = min(offset, captured), max(0, total-offset)
	d.from, d.to = netip.AddrPortFrom(from, sport), netip.AddrPortFrom(to, dport)
	d.text += fmt.Sprintf("%s %s > %s", protocolName(d.protocol), d.from, d.to)
	if d.tcp != nil {
		d.text += " " + flags(d.tcp) + fmt.Sprintf(" seq %d", d.tcp.Seq)
		if d.tcp.ACK {
			d.text += fmt.Sprintf(" ack %d", d.tcp.Ack)
		}
	}
	d.text += fmt.Sprintf(" length %d", d.payload)
	return d, true
}

// flags formats the flags of a TCP header.
func flags(t *layers.TCP) string {
	var names []string
	for _, f := range []struct {
		set  bool
		name string
	}{{t.SYN, "SYN"}, {t.FIN, "FIN"}, {t.RST, "RST"}, {t.PSH, "PSH"}, {t.ACK, "ACK"}} {
		if f.set {
			names = append(names, f.name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}

func arpText(a *layers.ARP) string {
	sender, _ := netip.AddrFromSlice(a.SourceProtAddress)
	target, _ := netip.AddrFromSlice(a.DstProtAddress)
	if a.Operation == layers.ARPRequest {
		return fmt.Sprintf("ARP who-has %s tell %s", target, sender)
	}
	return fmt.Sprintf("ARP %s is at %x", sender, a.SourceHwAddress)
}

// through returns the offset at which the payload of a layer starts.
func through(packet gopacket.Packet, to gopacket.Layer) (offset int) {
	for _, l := range packet.Layers() {
		offset += len(l.LayerContents())
		if l == to {
			break
		}
	}
	return offset
}

const (
	icmpHeader = 8
	tcpHeader  = 20 // without options
)

// icmp reads an ICMP message and the packet that an error quotes. It returns how many bytes of it
// are headers.
func (d *decoded) icmp(packet gopacket.Packet) (headers int) {
	headers = icmpHeader
	var quoted []byte
	first, what := layers.LayerTypeIPv4, ""
	if i, ok := packet.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); ok {
		what = i.TypeCode.String()
		switch i.TypeCode.Type() {
		case layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4TypeTimeExceeded, layers.ICMPv4TypeParameterProblem:
			d.icmpError, quoted = "ICMP "+what, i.Payload
		}
	} else if i, ok := packet.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok {
		what, first = i.TypeCode.String(), layers.LayerTypeIPv6
		const unused = 4
		switch t := i.TypeCode.Type(); {
		case t < layers.ICMPv6TypeEchoRequest && len(i.Payload) > unused:
			d.icmpError, quoted = "ICMPv6 "+what, i.Payload[unused:]
		case t > layers.ICMPv6TypeEchoReply: // neighbour discovery and the like
			headers += len(i.Payload)
		}
	}
	d.text = fmt.Sprintf("icmp %s > %s %s", d.from.Addr(), d.to.Addr(), what)
	if len(quoted) > 0 {
		// The TCP header in an error is often truncated; its ports come first.
		var header int
		if d.quoted, header = decodeQuoted(first, quoted); d.quoted != nil {
			headers += header + tcpHeader
			d.text += fmt.Sprintf(" of %s %s > %s", protocolName(d.quoted.protocol), d.quoted.from, d.quoted.to)
		}
	}
	return headers
}

// decodeQuoted reads the IP header and the ports that an ICMP error quotes, and returns the length
// of that header.
func decodeQuoted(first gopacket.LayerType, data []byte) (of *decoded, header int) {
	ip := gopacket.NewPacket(data, first, gopacket.DecodeOptions{Lazy: true, NoCopy: true}).NetworkLayer()
	from, to, protocol, ok := ends(ip)
	if !ok {
		return nil, 0
	}
	var sport, dport uint16
	const ports = 4
	rest := ip.LayerPayload()
	if (protocol == unix.IPPROTO_TCP || protocol == unix.IPPROTO_UDP) && len(rest) >= ports {
		sport, dport = binary.BigEndian.Uint16(rest), binary.BigEndian.Uint16(rest[2:])
	}
	return &decoded{protocol: protocol, from: netip.AddrPortFrom(from, sport), to: netip.AddrPortFrom(to, dport)}, len(ip.LayerContents())
}
