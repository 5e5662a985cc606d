package network

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// filter selects the packets to capture. Zero fields mean any.
type filter struct {
	address  netip.Addr
	port     uint16
	protocol uint8 // IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP (and ICMPv6)
}

// String formats the filter like tcpdump.
func (f filter) String() string {
	s := "all packets"
	if f.protocol != 0 {
		s = protocolName(f.protocol)
	}
	if f.address.IsValid() {
		s += " host " + f.address.String()
	}
	if f.port != 0 {
		s += fmt.Sprintf(" port %d", f.port)
	}
	return s
}

// assembler assembles a program of classic BPF: jumps are to labels, and only forwards.
type assembler struct {
	code   []bpf.Instruction
	jumps  map[int][2]string // targets of a JumpIf, if true and if false; empty: the next instruction
	labels map[string]int
}

func (a *assembler) add(ins ...bpf.Instruction) { a.code = append(a.code, ins...) }

func (a *assembler) label(name string) { a.labels[name] = len(a.code) }

// newLabel returns a unique name for a label that is placed later.
func (a *assembler) newLabel(name string) string { return fmt.Sprintf("%s-%d", name, len(a.code)) }

func (a *assembler) jump(test bpf.JumpTest, value uint32, yes, no string) {
	a.jumps[len(a.code)] = [2]string{yes, no}
	a.add(bpf.JumpIf{Cond: test, Val: value})
}

func (a *assembler) equal(value uint32, yes, no string) { a.jump(bpf.JumpEqual, value, yes, no) }

// finish resolves the labels.
func (a *assembler) finish() ([]bpf.Instruction, error) {
	for at, to := range a.jumps {
		var skip [2]uint8
		for i, name := range to {
			if name == "" {
				continue
			}
			target, ok := a.labels[name]
			n := target - at - 1
			if !ok || n < 0 || n > 0xff {
				return nil, fmt.Errorf("filter: no way from instruction %d to %s", at, name)
			}
			skip[i] = uint8(n)
		}
		j := a.code[at].(bpf.JumpIf) // jump has put it there
		j.SkipTrue, j.SkipFalse = skip[0], skip[1]
		a.code[at] = j
	}
	return a.code, nil
}

// ipVersion describes the header of an IP version. Offsets are from the beginning of the header.
type ipVersion struct {
	length                        bpf.Instruction // loads the header's length into X
	protocol, source, destination uint32
	fragment                      uint32 // 0: the header has no such field
	shortest                      uint32 // length of the header without options
	icmp                          uint32
}

func headerOfIPv4() ipVersion {
	return ipVersion{length: bpf.LoadMemShift{Off: 0}, fragment: 6, protocol: 9, source: 12, destination: 16, shortest: 20, icmp: unix.IPPROTO_ICMP}
}

func headerOfIPv6() ipVersion {
	const size = 40
	return ipVersion{length: bpf.LoadConstant{Dst: bpf.RegX, Val: size}, protocol: 6, source: 8, destination: 24, shortest: size, icmp: unix.IPPROTO_ICMPV6}
}

const (
	arpSender, arpTarget = 14, 24
	icmpQuote            = 8 // offset of the quoted packet in an ICMP error
)

// load returns an instruction that loads a field of a header.
type load func(offset uint32, size int) bpf.Instruction

func ofPacket(offset uint32, size int) bpf.Instruction {
	return bpf.LoadAbsolute{Off: offset, Size: size}
}

func ofQuote(offset uint32, size int) bpf.Instruction {
	return bpf.LoadIndirect{Off: icmpQuote + offset, Size: size}
}

// program returns a program whose result is the number of bytes of a packet to keep: snaplen, or 0.
// A packet begins with its network header. Besides matching packets, it accepts ICMP errors about
// them. It does not parse behind IPv6 extension headers or behind options in the header that an
// ICMP error quotes.
func (f filter) program(snaplen uint32) ([]bpf.Instruction, error) {
	if f == (filter{}) {
		return []bpf.Instruction{bpf.RetConstant{Val: snaplen}}, nil
	}
	a := &assembler{jumps: map[int][2]string{}, labels: map[string]int{}}
	a.add(bpf.LoadAbsolute{Off: 0, Size: 1}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf0})
	a.equal(0x40, "v4", "")
	a.equal(0x60, "v6", "other")

	a.label("v4")
	if f.address.Is6() {
		a.equal(0x40, "reject", "reject")
	} else {
		f.ip(a, headerOfIPv4())
	}
	a.label("v6")
	if f.address.Is4() {
		a.equal(0x60, "reject", "reject")
	} else {
		f.ip(a, headerOfIPv6())
	}
	a.label("other")
	if f.protocol == 0 && f.port == 0 && f.address.Is4() { // ARP
		address := binary.BigEndian.Uint32(f.address.AsSlice())
		a.add(bpf.LoadAbsolute{Off: arpSender, Size: 4})
		a.equal(address, "accept", "")
		a.add(bpf.LoadAbsolute{Off: arpTarget, Size: 4})
		a.equal(address, "accept", "reject")
	}
	a.label("reject")
	a.add(bpf.RetConstant{Val: 0})
	a.label("accept")
	a.add(bpf.RetConstant{Val: snaplen})
	return a.finish()
}

// ip adds the code for packets of an IP version.
func (f filter) ip(a *assembler, v ipVersion) {
	icmp := a.newLabel("icmp")
	a.add(v.length, ofPacket(v.protocol, 1))
	a.equal(v.icmp, icmp, "")
	f.match(a, v, ofPacket, 0)

	a.label(icmp)
	if direct := f.protocol == 0 || f.protocol == unix.IPPROTO_ICMP; direct && f.port == 0 {
		if !f.address.IsValid() {
			a.equal(0, "accept", "accept")
			return
		}
		f.hosts(a, v, ofPacket, "accept", "")
	}
	a.add(bpf.LoadIndirect{Off: 0, Size: 1})
	if v.icmp == unix.IPPROTO_ICMPV6 {
		a.jump(bpf.JumpGreaterOrEqual, 128, "reject", "") // errors have lower types
	} else {
		quote := a.newLabel("quote")
		a.equal(3, quote, "")        // destination unreachable
		a.equal(11, quote, "")       // time exceeded
		a.equal(12, quote, "reject") // parameter problem
		a.label(quote)
	}
	f.match(a, v, ofQuote, icmpQuote+v.shortest)
}

// match adds code that accepts or rejects by an IP header, and by the ports at X + ports.
func (f filter) match(a *assembler, v ipVersion, field load, ports uint32) {
	a.add(field(v.protocol, 1))
	switch f.protocol {
	case 0:
	case unix.IPPROTO_ICMP:
		a.equal(v.icmp, "", "reject")
	default:
		a.equal(uint32(f.protocol), "", "reject")
	}
	fits := a.newLabel("fits")
	f.hosts(a, v, field, fits, "reject")
	a.label(fits)
	if f.port == 0 {
		a.equal(0, "accept", "accept")
		return
	}
	if v.fragment != 0 {
		a.add(field(v.fragment, 2))
		a.jump(bpf.JumpBitsSet, 0x1fff, "reject", "") // only the first fragment has ports
	}
	a.add(field(v.protocol, 1))
	transport := a.newLabel("transport")
	a.equal(unix.IPPROTO_TCP, transport, "")
	a.equal(unix.IPPROTO_UDP, transport, "")
	a.equal(unix.IPPROTO_SCTP, transport, "reject")
	a.label(transport)
	a.add(bpf.LoadIndirect{Off: ports, Size: 2})
	a.equal(uint32(f.port), "accept", "")
	a.add(bpf.LoadIndirect{Off: ports + 2, Size: 2})
	a.equal(uint32(f.port), "accept", "reject")
}

// hosts adds code that jumps to yes if one of the two addresses of an IP header matches, and to no
// otherwise. If no is empty, or there is no address to match, the program continues after it.
func (f filter) hosts(a *assembler, v ipVersion, field load, yes, no string) {
	address := f.address.AsSlice()
	last := len(address) - 4
	for i, at := range []uint32{v.source, v.destination} {
		other := a.newLabel("other")
		miss := other
		if i == 1 && no != "" {
			miss = no
		}
		for word := 0; word <= last; word += 4 {
			hit := ""
			if word == last {
				hit = yes
			}
			a.add(field(at+uint32(word), 4))
			a.equal(binary.BigEndian.Uint32(address[word:]), hit, miss)
		}
		a.label(other)
	}
}
