package network

import (
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"github.com/kernosis/kernosis/collector/display"
)

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
