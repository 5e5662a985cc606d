package operation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// PacketCapture captures packets of a namespace.
func PacketCapture(h Host) Builtin {
	return Builtin{
		Name: "packet-capture",
		Doc: "Captures packets of an address, port and protocol on all devices of a network namespace, with the ICMP errors about " +
			"them, until a limit is reached. By default only headers are kept. The artifact capture.pcapng has the packets; the results " +
			"sum them up by conversation: handshakes, resets, what was sent again. Port and protocol are not seen behind IPv6 extension headers.",
		Effect: Collect,
		Parameters: slices.Concat([]Parameter{
			{Name: "address", Doc: "IP address of either end; default: any", Kind: Address},
			{Name: "port", Doc: "port of either end; default: any", Kind: Integer, Max: 1<<16 - 1},
			{Name: "protocol", Doc: "what is captured; those that run over TCP mean tcp", Kind: Enum, Default: "any",
				Values: []string{"any", "tcp", "udp", "icmp", "http", "https", "grpc"}},
			{Name: "where", Doc: "target: in the namespace of this node that has the address, if there is one; given: in the one that the parameters name",
				Kind: Enum, Values: []string{"target", "given"}, Default: "target"},
		}, netPlaceParameters(), []Parameter{
			netLinkParameter(),
			{Name: "duration", Doc: "how long, at most", Kind: Duration, Default: "5s", Max: int64(time.Minute)},
			{Name: "packets", Doc: "how many, at most", Kind: Integer, Default: "1000", Max: 1_000_000},
			{Name: "bytes", Doc: "size of the file, at most", Kind: Bytes, Default: "1Mi", Max: 64 << 20},
			{Name: "snaplen", Doc: "bytes of a packet that are looked at, at most", Kind: Integer, Default: "128", Max: 1<<16 - 1},
			{Name: "payload", Doc: "true: keep also what is behind the TCP or UDP header", Kind: Boolean, Default: "false"},
		}),
		Results: netResults(
			Result{"packets", "packets captured"},
			Result{"kernelDropped", "packets that the kernel could not keep for the capture"},
			Result{"stoppedBy", "duration, packets, bytes or budget"},
			Result{"filter", "what was captured"},
			Result{"flowCount", "conversations, each once per device"},
			Result{"flows", "the conversations, those with resets, repetitions or without an answer first"},
			Result{"firstPackets", "the first packets, one after another"},
			Result{"syn", "SYNs"},
			Result{"synAck", "SYN-ACKs"},
			Result{"unansweredSYN", "conversations whose SYNs got neither SYN-ACK nor RST"},
			Result{"rst", "RSTs"},
			Result{"retransmitted", "TCP segments that were sent again"},
			Result{"icmpErrors", "ICMP errors"},
			Result{"handshake", "the longest TCP handshake"},
		),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			c, err := h.netCaptureOf(call.Parameters)
			if err != nil {
				return Output{}, err
			}
			r := newNetReport(&c.place)
			if err := c.run(ctx, call, r); err != nil {
				return Output{}, err
			}
			c.report(r)
			return r.output(nil), nil
		},
	}
}

// netCapture is one capture under way.
type netCapture struct {
	host       Host
	place      netPlace
	filter     netFilter
	link       int
	duration   time.Duration
	packets    int
	bytes      int64
	snaplen    uint32
	payload    bool
	names      map[int]string
	unnamed    error       // why there are no names
	interfaces map[int]int // of the file, by the device's index
	written    int64
	stopped    string
	dropped    uint32
	sum        *netSummary
}

// netCaptureOf is what the parameters ask for.
func (h Host) netCaptureOf(v Values) (*netCapture, error) {
	place, err := h.netPlace(v)
	if err != nil {
		return nil, err
	}
	if v["where"] == "target" {
		// An address that is none of this node's is captured where the parameters say.
		target, err := h.netTarget(v, false)
		if err == nil {
			place = target
		} else if !errors.Is(err, errNetElsewhere) {
			return nil, err
		}
	}
	at := netAt(v)
	c := &netCapture{
		host: h, place: place, filter: netFilter{address: at.Addr(), port: at.Port()},
		duration: v.Duration("duration"), packets: max(1, int(v.Int("packets"))), bytes: v.Bytes("bytes"),
		snaplen: uint32(v.Int("snaplen")), payload: v.Bool("payload"), interfaces: map[int]int{},
	}
	switch v["protocol"] {
	case "any":
	case "udp":
		c.filter.protocol = unix.IPPROTO_UDP
	case "icmp":
		c.filter.protocol = unix.IPPROTO_ICMP
	default:
		c.filter.protocol = unix.IPPROTO_TCP
	}
	const least = 60 // a whole IPv4 header with options
	if c.snaplen < least {
		return nil, fmt.Errorf("parameter snaplen: less than %d", least)
	}
	links, err := h.netLinksOf(&place)
	if err != nil && v["link"] != "" {
		return nil, err
	}
	c.unnamed = err // packets need no rtnl_lock, which the names may wait for in vain
	c.names = map[int]string{}
	for i := range links {
		c.names[links[i].index] = links[i].name
		if links[i].name == v["link"] {
			c.link = links[i].index
		}
	}
	if v["link"] != "" && c.link == 0 {
		return nil, fmt.Errorf("%s has no device %q", &place, v["link"])
	}
	c.sum = newNetSummary(c.names)
	return c, nil
}

func (h Host) netLinksOf(p *netPlace) ([]netLink, error) {
	view, err := h.netOpen(p)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	return netLinks(view, newNetReport(nil))
}

// run captures into the artifact.
func (c *netCapture) run(ctx context.Context, call *Call, r *finding) (err error) {
	var out io.Writer = io.Discard
	if call.Artifacts == nil {
		r.note("capture.pcapng was not kept: no artifacts are taken")
	} else {
		file, err := call.Artifacts.Create("capture.pcapng")
		if err != nil {
			return fmt.Errorf("write artifact capture.pcapng: %w", err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	w, err := c.begin(out)
	if err != nil {
		return c.budget(err, r)
	}
	s, err := c.host.netOpenCapture(&c.place, c.filter, c.link, c.snaplen)
	if err != nil {
		return err
	}
	defer s.close()
	err = s.run(ctx, c.duration, func(p *netPacket) error { return c.take(w, p) })
	if dropped, statErr := s.dropped(); statErr != nil {
		r.note("the kernel does not report what it dropped: %v", statErr)
	} else {
		c.dropped = dropped
	}
	switch {
	case errors.Is(err, io.EOF):
		c.stopped, err = "duration", nil
	case errors.Is(err, errNetLimit):
		err = nil
	}
	return c.budget(errors.Join(err, w.Flush()), r)
}

// budget makes an end of a capture that has no more disk to write to: what it has is
// told.
func (c *netCapture) budget(err error, r *finding) error {
	if errors.Is(err, ErrArtifactBudget) {
		c.stopped = "budget"
		r.note("capture.pcapng is cut: %s", ErrArtifactBudget)
		return nil
	}
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	return nil
}

// report keeps the results.
func (c *netCapture) report(r *finding) {
	if c.unnamed != nil {
		r.note("names of devices: %v", c.unnamed)
	}
	r.uint("packets", uint64(c.sum.packets))
	r.uint("kernelDropped", uint64(c.dropped))
	r.text("stoppedBy", c.stopped)
	r.text("filter", c.filter.String())
	r.uint("flowCount", uint64(len(c.sum.order)))
	if c.sum.overFlows > 0 {
		r.note("%d packets belong to more conversations than the %d that are counted separately", c.sum.overFlows, netMaxFlows)
	}
	if c.sum.undecoded > 0 {
		r.note("%d packets are of protocols that are not read", c.sum.undecoded)
	}
	var syn, synAck, unanswered, rst, again uint64
	var handshake time.Duration
	var flows []string
	for _, f := range c.sum.sorted() {
		flows = append(flows, f.String())
		syn, synAck = syn+uint64(f.syn), synAck+uint64(f.synAck)
		rst, again = rst+uint64(f.rst[0]+f.rst[1]), again+uint64(f.retransmitted[0]+f.retransmitted[1])
		if f.unanswered() {
			unanswered++
		}
		handshake = max(handshake, f.handshake())
	}
	const shown = 6
	r.text("flows", netLines(flows, shown))
	r.text("firstPackets", netLines(c.sum.lines, netMaxLines))
	for name, n := range map[string]uint64{
		"syn": syn, "synAck": synAck, "unansweredSYN": unanswered, "rst": rst, "retransmitted": again, "icmpErrors": uint64(c.sum.icmpErrs),
	} {
		r.uint(name, n)
	}
	if handshake > 0 {
		r.text("handshake", handshake.Round(time.Microsecond).String())
	}
}
