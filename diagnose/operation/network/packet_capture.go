package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/diagnose/operation"
)

func PacketCapture(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "packet-capture",
		Doc: "Captures packets of an address, port and protocol on all devices of a network namespace, and related ICMP errors, until a limit is reached. " +
			"By default it keeps headers only. Artifact capture.pcapng has the packets; the results summarize them by conversation: handshakes, resets, " +
			"retransmissions. It does not recognize port and protocol behind IPv6 extension headers.",
		Effect: operation.Collect,
		Parameters: slices.Concat([]operation.Parameter{
			{Name: "address", Doc: "IP address of either end; none: any", Kind: operation.Address},
			{Name: "port", Doc: "port of either end; none: any", Kind: operation.Integer, Max: 1<<16 - 1},
			{Name: "protocol", Doc: "protocol; those over TCP mean tcp", Kind: operation.Enum, Default: "any",
				Values: []string{"any", "tcp", "udp", "icmp", "http", "https", "grpc"}},
			{Name: "where", Doc: "target: the namespace of this node that has the address, if any; given: the namespace selected by the parameters",
				Kind: operation.Enum, Values: []string{"target", "given"}, Default: "target"},
		}, placeParameters(), []operation.Parameter{
			linkParameter(),
			{Name: "duration", Doc: "maximum duration", Kind: operation.Duration, Default: "5s", Max: int64(time.Minute)},
			{Name: "packets", Doc: "maximum number of packets", Kind: operation.Integer, Default: "1000", Max: 1_000_000},
			{Name: "bytes", Doc: "maximum file size", Kind: operation.Bytes, Default: "1Mi", Max: 64 << 20},
			{Name: "snaplen", Doc: "maximum bytes inspected per packet", Kind: operation.Integer, Default: "128", Max: 1<<16 - 1},
			{Name: "payload", Doc: "true: also keep what follows the TCP or UDP header", Kind: operation.Boolean, Default: "false"},
		}),
		Results: results(
			operation.Result{Name: "packets", Doc: "captured packets"},
			operation.Result{Name: "kernelDropped", Doc: "packets the kernel dropped before they were captured"},
			operation.Result{Name: "stoppedBy", Doc: "duration, packets, bytes or budget"},
			operation.Result{Name: "filter", Doc: "what was captured"},
			operation.Result{Name: "flowCount", Doc: "conversations, each once per device"},
			operation.Result{Name: "flows", Doc: "conversations; those with resets, retransmissions or no answer first"},
			operation.Result{Name: "firstPackets", Doc: "first packets in order"},
			operation.Result{Name: "syn", Doc: "SYNs"},
			operation.Result{Name: "synAck", Doc: "SYN-ACKs"},
			operation.Result{Name: "unansweredSYN", Doc: "conversations whose SYNs got neither SYN-ACK nor RST"},
			operation.Result{Name: "rst", Doc: "RSTs"},
			operation.Result{Name: "retransmitted", Doc: "retransmitted TCP segments"},
			operation.Result{Name: "icmpErrors", Doc: "ICMP errors"},
			operation.Result{Name: "handshake", Doc: "longest TCP handshake"},
		),
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			c, err := captureOf(h, call.Parameters)
			if err != nil {
				return operation.Output{}, err
			}
			r := newReport(&c.place)
			if err := c.run(ctx, call, r); err != nil {
				return operation.Output{}, err
			}
			c.report(r)
			return r.Output(nil), nil
		},
	}
}

// capture is a capture in progress.
type capture struct {
	host       operation.Host
	place      place
	filter     filter
	link       int
	duration   time.Duration
	packets    int
	bytes      int64
	snaplen    uint32
	payload    bool
	names      map[int]string
	unnamed    error       // why names are missing
	interfaces map[int]int // index in the file, by device index
	written    int64
	stopped    string
	dropped    uint32
	sum        *summary
}

// captureOf returns the capture that the parameters describe.
func captureOf(h operation.Host, v operation.Values) (*capture, error) {
	place, err := findPlace(h, v)
	if err != nil {
		return nil, err
	}
	if v["where"] == "target" {
		// If the address is not on this node, capture in the namespace that the parameters select.
		target, err := findTarget(h, v, false)
		if err == nil {
			place = target
		} else if !errors.Is(err, errNetElsewhere) {
			return nil, err
		}
	}
	at := at(v)
	c := &capture{
		host: h, place: place, filter: filter{address: at.Addr(), port: at.Port()},
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
	const least = 60 // longest IPv4 header with options
	if c.snaplen < least {
		return nil, fmt.Errorf("parameter snaplen: want at least %d", least)
	}
	links, err := linksOf(h, &place)
	if err != nil && v["link"] != "" {
		return nil, err
	}
	c.unnamed = err // a capture needs no rtnl_lock, while reading the names may wait for it forever
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

func linksOf(h operation.Host, p *place) ([]link, error) {
	view, err := open(h, p)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	return links(view, newReport(nil))
}

// run captures packets into the artifact.
func (c *capture) run(ctx context.Context, call *operation.Call, r *operation.Finding) (err error) {
	var out io.Writer = io.Discard
	if call.Artifacts == nil {
		r.Note("capture.pcapng was not kept: artifacts are not stored")
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
	s, err := openCapture(c.host, &c.place, c.filter, c.link, c.snaplen)
	if err != nil {
		return err
	}
	defer s.close()
	err = s.run(ctx, c.duration, func(p *packet) error { return c.take(w, p) })
	if dropped, statErr := s.dropped(); statErr != nil {
		r.Note("the kernel did not report how many packets it dropped: %v", statErr)
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

// budget ends a capture that has reached the disk budget without an error, so that the packets
// captured so far are reported.
func (c *capture) budget(err error, r *operation.Finding) error {
	if errors.Is(err, operation.ErrArtifactBudget) {
		c.stopped = "budget"
		r.Note("capture.pcapng is truncated: %s", operation.ErrArtifactBudget)
		return nil
	}
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	return nil
}

// report stores the results.
func (c *capture) report(r *operation.Finding) {
	if c.unnamed != nil {
		r.Note("can't read device names: %v", c.unnamed)
	}
	r.Uint("packets", uint64(c.sum.packets))
	r.Uint("kernelDropped", uint64(c.dropped))
	r.Text("stoppedBy", c.stopped)
	r.Text("filter", c.filter.String())
	r.Uint("flowCount", uint64(len(c.sum.order)))
	if c.sum.overFlows > 0 {
		r.Note("%d packets belong to more conversations than the %d that are counted separately", c.sum.overFlows, maxFlows)
	}
	if c.sum.undecoded > 0 {
		r.Note("%d packets use protocols that are not decoded", c.sum.undecoded)
	}
	var syn, synAck, unanswered, rst, again uint64
	var handshake time.Duration
	var flows []string
	for _, f := range c.sum.sorted() {
		flows = append(flows, f.String())
		syn, synAck = syn+uint64(f.syn), synAck+uint64(f.synAck)
		rst, again = rst+uint64(f.sides[0].rst+f.sides[1].rst), again+uint64(f.sides[0].retransmitted+f.sides[1].retransmitted)
		if f.unanswered() {
			unanswered++
		}
		handshake = max(handshake, f.handshake())
	}
	const shown = 6
	r.Text("flows", lines(flows, shown))
	r.Text("firstPackets", lines(c.sum.lines, maxLines))
	for name, n := range map[string]uint64{
		"syn": syn, "synAck": synAck, "unansweredSYN": unanswered, "rst": rst, "retransmitted": again, "icmpErrors": uint64(c.sum.icmpErrs),
	} {
		r.Uint(name, n)
	}
	if handshake > 0 {
		r.Text("handshake", handshake.Round(time.Microsecond).String())
	}
}
