package network

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// filter says which packets a capture takes. Zero fields mean any.
type filter struct {
	address  netip.Addr
	port     uint16
	protocol uint8 // IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP (and ICMPv6)
}

// String is the filter in the words of tcpdump.
func (f filter) String() string {
	s := "all packets"
	name := map[uint8]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_ICMP: "icmp"}[f.protocol]
	if name != "" {
		s = name
	}
	if f.address.IsValid() {
		s += " host " + f.address.String()
	}
	if f.port != 0 {
		s += fmt.Sprintf(" port %d", f.port)
	}
	return s
}

// assembler puts a program of classic BPF together: jumps are to labels, and only
// forwards.
type assembler struct {
	code   []bpf.Instruction
	jumps  map[int][2]string // of a JumpIf: where to if so, and if not; empty: on
	labels map[string]int
}

func (a *assembler) add(ins ...bpf.Instruction) { a.code = append(a.code, ins...) }

func (a *assembler) label(name string) { a.labels[name] = len(a.code) }

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
		j := a.code[at].(bpf.JumpIf) // put there by jump
		j.SkipTrue, j.SkipFalse = skip[0], skip[1]
		a.code[at] = j
	}
	return a.code, nil
}

// Offsets in headers that the program is about, from the header's beginning.
const (
	iP4Fragment, iP4Protocol, iP4Source, iP4Destination = 6, 9, 12, 16
	iP4Length                                           = 20 // without options
	iP6Next, iP6Source, iP6Destination, iP6Length       = 6, 8, 24, 40
	arpSender, arpTarget                                = 14, 24
	icmpQuote                                           = 8 // where an ICMP error has the packet it is about
)

// program returns the program that reports how many bytes of a packet to keep: snaplen, or
// none. A packet begins with its network header. Besides those packets that fit, it takes
// ICMP errors about them. IPv6 extension headers, and options in the header that an ICMP
// error quotes, are not looked behind.
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
		f.ip4(a)
	}
	a.label("v6")
	if f.address.Is4() {
		a.equal(0x60, "reject", "reject")
	} else {
		f.ip6(a)
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

// ip4 adds what becomes of an IPv4 packet.
func (f filter) ip4(a *assembler) {
	a.add(bpf.LoadAbsolute{Off: iP4Protocol, Size: 1})
	a.equal(unix.IPPROTO_ICMP, "icmp4", "")
	f.wants(a, "", "reject")
	if f.address.IsValid() {
		address := binary.BigEndian.Uint32(f.address.AsSlice())
		a.add(bpf.LoadAbsolute{Off: iP4Source, Size: 4})
		a.equal(address, "ports4", "")
		a.add(bpf.LoadAbsolute{Off: iP4Destination, Size: 4})
		a.equal(address, "ports4", "reject")
	}
	a.label("ports4")
	if f.port != 0 {
		a.add(bpf.LoadAbsolute{Off: iP4Fragment, Size: 2})
		a.jump(bpf.JumpBitsSet, 0x1fff, "reject", "") // only a first fragment has ports
		a.add(bpf.LoadMemShift{Off: 0}, bpf.LoadAbsolute{Off: iP4Protocol, Size: 1})
		f.ports(a, 0)
	} else {
		a.equal(0, "accept", "accept")
	}

	a.label("icmp4")
	a.add(bpf.LoadMemShift{Off: 0})
	if direct := f.protocol == 0 || f.protocol == unix.IPPROTO_ICMP; direct && f.port == 0 {
		if !f.address.IsValid() {
			a.equal(0, "accept", "accept")
			return
		}
		address := binary.BigEndian.Uint32(f.address.AsSlice())
		a.add(bpf.LoadAbsolute{Off: iP4Source, Size: 4})
		a.equal(address, "accept", "")
		a.add(bpf.LoadAbsolute{Off: iP4Destination, Size: 4})
		a.equal(address, "accept", "")
	}
	// An error: destination unreachable, time exceeded, parameter problem.
	a.add(bpf.LoadIndirect{Off: 0, Size: 1})
	a.equal(3, "quote4", "")
	a.equal(11, "quote4", "")
	a.equal(12, "quote4", "reject")
	a.label("quote4")
	a.add(bpf.LoadIndirect{Off: icmpQuote + iP4Protocol, Size: 1})
	f.wants(a, "", "reject")
	if f.address.IsValid() {
		address := binary.BigEndian.Uint32(f.address.AsSlice())
		a.add(bpf.LoadIndirect{Off: icmpQuote + iP4Source, Size: 4})
		a.equal(address, "quotedPorts4", "")
		a.add(bpf.LoadIndirect{Off: icmpQuote + iP4Destination, Size: 4})
		a.equal(address, "quotedPorts4", "reject")
	}
	a.label("quotedPorts4")
	if f.port != 0 {
		a.add(bpf.LoadIndirect{Off: icmpQuote + iP4Protocol, Size: 1})
		f.ports(a, icmpQuote+iP4Length)
	} else {
		a.equal(0, "accept", "accept")
	}
}

// ip6 adds what becomes of an IPv6 packet.
func (f filter) ip6(a *assembler) {
	const header = iP6Length
	a.add(bpf.LoadConstant{Dst: bpf.RegX, Val: header}, bpf.LoadAbsolute{Off: iP6Next, Size: 1})
	a.equal(unix.IPPROTO_ICMPV6, "icmp6", "")
	f.wants(a, "", "reject")
	f.address6(a, 0, "ports6", "reject", "a")
	a.label("ports6")
	if f.port != 0 {
		a.add(bpf.LoadAbsolute{Off: iP6Next, Size: 1})
		f.ports(a, 0)
	} else {
		a.equal(0, "accept", "accept")
	}

	a.label("icmp6")
	if direct := f.protocol == 0 || f.protocol == unix.IPPROTO_ICMP; direct && f.port == 0 {
		if !f.address.IsValid() {
			a.equal(0, "accept", "accept")
			return
		}
		f.address6(a, 0, "accept", "", "b")
	}
	// Errors have types below 128.
	a.add(bpf.LoadIndirect{Off: 0, Size: 1})
	a.jump(bpf.JumpGreaterOrEqual, 128, "reject", "")
	a.add(bpf.LoadIndirect{Off: icmpQuote + iP6Next, Size: 1})
	f.wants(a, "", "reject")
	f.address6(a, header+icmpQuote, "quotedPorts6", "reject", "c")
	a.label("quotedPorts6")
	if f.port != 0 {
		a.add(bpf.LoadIndirect{Off: icmpQuote + iP6Next, Size: 1})
		f.ports(a, icmpQuote+header)
	} else {
		a.equal(0, "accept", "accept")
	}
}

// wants goes on by the protocol, which is in the accumulator.
func (f filter) wants(a *assembler, yes, no string) {
	switch f.protocol {
	case 0:
	case unix.IPPROTO_ICMP:
		a.equal(unix.IPPROTO_ICMP, yes, "")
		a.equal(unix.IPPROTO_ICMPV6, yes, no)
	default:
		a.equal(uint32(f.protocol), yes, no)
	}
}

// address6 goes on by the two addresses of the IPv6 header at an offset. Empty no: on.
// name makes its labels its own.
func (f filter) address6(a *assembler, offset uint32, yes, no, name string) {
	if !f.address.IsValid() {
		return
	}
	b := f.address.As16()
	for i, field := range []uint32{iP6Source, iP6Destination} {
		other := name + "-destination"
		if i == 1 {
			other = no
		}
		for word := uint32(0); word < 16; word += 4 {
			next := ""
			if word == 12 {
				next = yes
			}
			miss := other
			if miss == "" {
				miss = name + "-miss"
			}
			a.add(bpf.LoadAbsolute{Off: offset + field + word, Size: 4})
			a.equal(binary.BigEndian.Uint32(b[word:]), next, miss)
		}
		if i == 0 {
			a.label(other)
		}
	}
	a.label(name + "-miss")
}

// ports accepts or rejects by the ports at X + offset; the protocol is in the accumulator.
func (f filter) ports(a *assembler, offset uint32) {
	name := fmt.Sprintf("ports-%d", len(a.code))
	a.equal(unix.IPPROTO_TCP, name, "")
	a.equal(unix.IPPROTO_UDP, name, "")
	a.equal(unix.IPPROTO_SCTP, name, "reject")
	a.label(name)
	a.add(bpf.LoadIndirect{Off: offset, Size: 2})
	a.equal(uint32(f.port), "accept", "")
	a.add(bpf.LoadIndirect{Off: offset + 2, Size: 2})
	a.equal(uint32(f.port), "accept", "reject")
}
