package network

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/gopacket/layers"
	"golang.org/x/sys/unix"
)

const (
	// maxFlows bounds the memory of a summary.
	maxFlows = 4096
	// maxLines is how many packets are listed individually.
	maxLines = 12
)

// flowKey identifies a conversation on one device, in both directions.
type flowKey struct {
	link     int
	protocol uint8
	a, b     netip.AddrPort // a is the smaller
}

// flow has the observations of a conversation. For TCP, from is the sender of the SYN, otherwise
// the end that was seen first.
type flow struct {
	link                        string
	protocol                    string
	from, to                    netip.AddrPort
	sides                       [2]side // of from and to
	syn, synAck, fin            int
	firstSYN, synAckAt, opened  time.Time
	synRepeated, synAckRepeated bool
	unreachable                 string // an ICMP error about it
	unreachableCount            int
}

// side has what one end of a flow has sent.
type side struct {
	packets, payload, rst, retransmitted int
	end                                  uint32 // the highest sequence number, plus one
	known                                bool   // end is valid
}

// summary summarizes the packets of a capture.
type summary struct {
	flows               map[flowKey]*flow
	order               []*flow
	overFlows           int // packets of flows beyond maxFlows
	lines               []string
	packets             int
	undecoded, icmpErrs int
	began               time.Time
	names               map[int]string
}

func newNetSummary(names map[int]string) *summary {
	return &summary{flows: map[flowKey]*flow{}, names: names}
}

// decoded has the fields of a packet that are used.
type decoded struct {
	from, to  netip.AddrPort
	protocol  uint8
	tcp       *layers.TCP
	payload   int // bytes after the TCP or UDP header, on the link
	text      string
	headers   int // captured bytes before the payload
	icmpError string
	quoted    *decoded
}

// add adds a packet, and returns how many of its captured bytes are headers.
func (s *summary) add(p *packet) (headers int) {
	s.packets++
	if s.began.IsZero() {
		s.began = p.at
	}
	d, ok := decode(p.protocol, p.data)
	if !ok {
		s.undecoded++
	}
	if len(s.lines) < maxLines {
		way := "in"
		if p.kind == unix.PACKET_OUTGOING {
			way = "out"
		}
		s.lines = append(s.lines, fmt.Sprintf("+%s %s %s %s", p.at.Sub(s.began).Round(time.Microsecond), s.name(p.link), way, d.text))
	}
	switch {
	case d.icmpError != "":
		s.icmpErrs++
		if d.quoted != nil {
			if f := s.flow(p.link, d.quoted); f != nil {
				f.unreachable = d.icmpError + " from " + d.from.Addr().String()
				f.unreachableCount++
			}
		}
	case d.from.IsValid():
		if f := s.flow(p.link, &d); f != nil {
			f.take(&d, p.at)
		} else {
			s.overFlows++
		}
	}
	return d.headers
}

func (s *summary) name(link int) string {
	if n := s.names[link]; n != "" {
		return n
	}
	return fmt.Sprintf("device %d", link)
}

// flow returns the flow of a packet, which it creates if needed; nil: there are too many.
func (s *summary) flow(link int, d *decoded) *flow {
	k := flowKey{link: link, protocol: d.protocol, a: d.from, b: d.to}
	if d.to.Compare(d.from) < 0 {
		k.a, k.b = d.to, d.from
	}
	f := s.flows[k]
	if f == nil && len(s.flows) < maxFlows {
		f = &flow{link: s.name(link), protocol: protocolName(d.protocol), from: d.from, to: d.to}
		s.flows[k], s.order = f, append(s.order, f)
	}
	return f
}

// take adds a packet to the flow.
func (f *flow) take(d *decoded, at time.Time) {
	if t := d.tcp; t != nil && t.SYN && !t.ACK && f.syn == 0 && f.from != d.from { // the other end was seen first
		f.from, f.to = f.to, f.from
		f.sides[0], f.sides[1] = f.sides[1], f.sides[0]
	}
	byFrom := d.from == f.from
	s := &f.sides[1]
	if byFrom {
		s = &f.sides[0]
	}
	s.packets++
	s.payload += d.payload
	t := d.tcp
	if t == nil {
		return
	}
	again := s.sequence(t, d.payload)
	if again {
		s.retransmitted++
	}
	switch {
	case t.SYN && !t.ACK:
		f.syn++
		if again && f.synAckAt.IsZero() {
			f.synRepeated = true
		} else if !again {
			f.firstSYN, f.synAckAt, f.opened, f.synRepeated, f.synAckRepeated = at, time.Time{}, time.Time{}, false, false
		}
	case t.SYN:
		f.synAck++
		if f.synAckAt.IsZero() {
			f.synAckAt = at
		} else {
			f.synAckRepeated = true
		}
	case t.ACK && byFrom && !f.synAckAt.IsZero() && f.opened.IsZero():
		f.opened = at
	}
	if t.RST {
		s.rst++
	}
	if t.FIN {
		f.fin++
	}
}

// sequence records the sequence numbers of a segment, and reports whether all of them were sent
// before.
func (s *side) sequence(t *layers.TCP, payload int) (again bool) {
	size := uint32(payload)
	if t.SYN {
		size++
	}
	if t.FIN {
		size++
	}
	if size == 0 {
		return false
	}
	end := t.Seq + size
	if t.SYN && s.end != end {
		s.known = false // another connection between the same ports
	}
	if s.known && int32(end-s.end) <= 0 {
		return true
	}
	s.known, s.end = true, end
	return false
}

// handshake returns the duration of the handshake; 0: it was not seen, or a repeated SYN makes it
// ambiguous.
func (f *flow) handshake() time.Duration {
	if f.opened.IsZero() || f.synRepeated || f.synAckRepeated || f.firstSYN.IsZero() {
		return 0
	}
	return f.opened.Sub(f.firstSYN)
}

// unanswered reports whether SYNs got neither SYN-ACK nor reset.
func (f *flow) unanswered() bool { return f.syn > 0 && f.synAck == 0 && f.sides[1].rst == 0 }

// trouble returns a score for sorting flows: those with more trouble come first.
func (f *flow) trouble() int {
	n := f.sides[0].rst + f.sides[1].rst + f.sides[0].retransmitted + f.sides[1].retransmitted + f.unreachableCount
	if f.unanswered() {
		n++
	}
	return n
}

// String formats the flow in one line.
func (f *flow) String() string {
	var out strings.Builder
	a, b := &f.sides[0], &f.sides[1]
	from, to := f.from.String(), f.to.String()
	if f.from.Port() == 0 && f.to.Port() == 0 {
		from, to = f.from.Addr().String(), f.to.Addr().String()
	}
	fmt.Fprintf(&out, "%s %s > %s on %s: %d/%d packets, %d/%d bytes", f.protocol, from, to, f.link, a.packets, b.packets, a.payload, b.payload)
	add := func(n int, text string) {
		if n > 0 {
			fmt.Fprintf(&out, ", %d %s", n, text)
		}
	}
	if f.protocol == "tcp" {
		add(f.syn, "SYN")
		add(f.synAck, "SYN-ACK")
		add(f.fin, "FIN")
		add(a.rst, "RST sent")
		add(b.rst, "RST received")
		add(a.retransmitted, "sent again")
		add(b.retransmitted, "received again")
		if d := f.handshake(); d > 0 {
			fmt.Fprintf(&out, ", handshake %s", d.Round(time.Microsecond))
		}
		if f.unanswered() {
			out.WriteString(", SYN unanswered")
		}
	}
	if f.unreachable != "" {
		fmt.Fprintf(&out, ", %d× %s", f.unreachableCount, f.unreachable)
	}
	return out.String()
}

// sorted returns the flows, those with trouble first, then the busiest.
func (s *summary) sorted() []*flow {
	list := slices.Clone(s.order)
	slices.SortStableFunc(list, func(a, b *flow) int {
		return cmp.Or(cmp.Compare(b.trouble(), a.trouble()), cmp.Compare(b.sides[0].packets+b.sides[1].packets, a.sides[0].packets+a.sides[1].packets))
	})
	return list
}

func protocolName(p uint8) string {
	switch p {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		return "icmp"
	}
	return fmt.Sprintf("protocol %d", p)
}
