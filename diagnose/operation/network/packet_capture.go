package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/display"
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
		Run: inspect(h, captureOf, func(ctx context.Context, call *operation.Call, c *capture,
			r *operation.Finding) (*operation.Verdict, error) {
			if err := c.run(ctx, call, r); err != nil {
				return nil, err
			}
			c.report(r)
			return nil, nil
		}),
	}
}

// capture is a capture in progress.
type capture struct {
	host       operation.Host
	place      *place
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
func captureOf(h operation.Host, v operation.Values) (*capture, *operation.Finding, error) {
	place, r, err := findPlace(h, v)
	if err != nil {
		return nil, nil, err
	}
	if v["where"] == "target" {
		// If the address is not on this node, capture in the namespace that the parameters select.
		target, about, err := findTarget(h, v)
		if err == nil {
			place, r = target, about
		} else if !errors.Is(err, errNetElsewhere) {
			return nil, nil, err
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
		return nil, nil, fmt.Errorf("parameter snaplen: want at least %d", least)
	}
	links, whole, err := linksOf(h, place, newReport(nil))
	switch {
	case err != nil && v["link"] != "":
		return nil, nil, err
	case err == nil && !whole:
		r.Note("devices changed meanwhile: some may be missing")
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
		return nil, nil, noDevice(place, v["link"], whole)
	}
	c.sum = newNetSummary(c.names)
	return c, r, nil
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
	s, err := openCapture(c.host, c.place, c.filter, c.link, c.snaplen)
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

const (
	sllHeader = 16  // of LINKTYPE_LINUX_SLL
	maxLinks  = 256 // devices that the head of the file describes
)

// errNetLimit ends a capture that has reached a limit.
var errNetLimit = errors.New("limit reached")

// begin writes the head of the file, which describes the existing devices.
func (c *capture) begin(out io.Writer) (*pcapgo.NgWriter, error) {
	indexes := slices.Sorted(maps.Keys(c.names))
	if c.link != 0 {
		indexes = []int{c.link}
	}
	if len(indexes) == 0 {
		indexes = []int{1} // the loopback device of each namespace
	}
	head := &countingWriter{to: out}
	w, err := pcapgo.NewNgWriterInterface(head, c.describe(indexes[0]), pcapgo.NgWriterOptions{
		SectionInfo: pcapgo.NgSectionInfo{OS: "linux", Application: "kernosis", Comment: display.Safe(c.place.String(), maxName)},
	})
	if err != nil {
		return nil, err
	}
	c.interfaces[indexes[0]] = 0
	for _, index := range indexes[1:min(len(indexes), maxLinks)] {
		if c.interfaces[index], err = w.AddInterface(c.describe(index)); err != nil {
			return nil, err
		}
	}
	err = w.Flush()
	c.written = head.n
	return w, err
}

// countingWriter counts the bytes written to it.
type countingWriter struct {
	to io.Writer
	n  int64
}

func (w *countingWriter) Write(b []byte) (int, error) {
	n, err := w.to.Write(b)
	w.n += int64(n)
	return n, err
}

func (c *capture) describe(index int) pcapgo.NgInterface {
	return pcapgo.NgInterface{
		Name: c.sum.name(index), Filter: c.filter.String(), OS: "linux",
		LinkType: layers.LinkTypeLinuxSLL, SnapLength: c.snaplen + sllHeader,
	}
}

// take counts and writes a packet, unless it exceeds the limit.
func (c *capture) take(w *pcapgo.NgWriter, p *packet) error {
	const block = 32 + 3 // maximum overhead of a packet in the file
	if c.written+sllHeader+int64(len(p.data))+block > c.bytes {
		c.stopped = "bytes"
		return errNetLimit
	}
	headers := c.sum.add(p)
	data := p.data
	if !c.payload {
		data = data[:min(headers, len(data))]
	}
	id, ok := c.interfaces[p.link]
	if !ok { // a device that appeared during the capture
		var err error
		if id, err = w.AddInterface(c.describe(p.link)); err != nil {
			return err
		}
		c.interfaces[p.link] = id
	}
	frame := append(sll(p), data...)
	if err := w.WritePacket(gopacket.CaptureInfo{
		Timestamp: p.at, CaptureLength: len(frame), Length: max(sllHeader+p.length, len(frame)), InterfaceIndex: id,
	}, frame); err != nil {
		return err
	}
	c.written += int64(len(frame)) + block
	if c.sum.packets >= c.packets {
		c.stopped = "packets"
		return errNetLimit
	}
	return nil
}

// sll returns the header of a Linux cooked capture.
func sll(p *packet) []byte {
	b := make([]byte, sllHeader, sllHeader+len(p.data))
	binary.BigEndian.PutUint16(b[0:], uint16(p.kind))
	binary.BigEndian.PutUint16(b[2:], p.arphrd)
	binary.BigEndian.PutUint16(b[4:], uint16(len(p.hardware)))
	copy(b[6:14], p.hardware)
	binary.BigEndian.PutUint16(b[14:], p.protocol)
	return b
}
