package systemstats

import (
	"maps"
	"slices"

	"github.com/prometheus/procfs"

	"github.com/kernosis/kernosis/collector/display"
)

// netMetric is a counter of an interface.
type netMetric struct {
	id, help string
	value    func(*procfs.NetDevLine) uint64
}

func netTable() []netMetric {
	type line = procfs.NetDevLine
	return []netMetric{
		{"rx_bytes", "Cumulative count of bytes received.", func(l *line) uint64 { return l.RxBytes }},
		{"rx_packets", "Cumulative count of packets received.", func(l *line) uint64 { return l.RxPackets }},
		{"rx_errors", "Cumulative count of receive errors encountered.", func(l *line) uint64 { return l.RxErrors }},
		{"rx_dropped", "Cumulative count of packets dropped while receiving.", func(l *line) uint64 { return l.RxDropped }},
		{"rx_fifo", "Cumulative count of FIFO buffer errors.", func(l *line) uint64 { return l.RxFIFO }},
		{"rx_frame", "Cumulative count of packet framing errors.", func(l *line) uint64 { return l.RxFrame }},
		{"rx_compressed", "Cumulative count of compressed packets received by the device driver.", func(l *line) uint64 { return l.RxCompressed }},
		{"rx_multicast", "Cumulative count of multicast frames received by the device driver.", func(l *line) uint64 { return l.RxMulticast }},
		{"tx_bytes", "Cumulative count of bytes transmitted.", func(l *line) uint64 { return l.TxBytes }},
		{"tx_packets", "Cumulative count of packets transmitted.", func(l *line) uint64 { return l.TxPackets }},
		{"tx_errors", "Cumulative count of transmit errors encountered.", func(l *line) uint64 { return l.TxErrors }},
		{"tx_dropped", "Cumulative count of packets dropped while transmitting.", func(l *line) uint64 { return l.TxDropped }},
		{"tx_fifo", "Cumulative count of FIFO buffer errors.", func(l *line) uint64 { return l.TxFIFO }},
		{"tx_collisions", "Cumulative count of collisions detected on the interface.", func(l *line) uint64 { return l.TxCollisions }},
		{"tx_carrier", "Cumulative count of carrier losses detected by the device driver.", func(l *line) uint64 { return l.TxCarrier }},
		{"tx_compressed", "Cumulative count of compressed packets transmitted by the device driver.", func(l *line) uint64 { return l.TxCompressed }},
	}
}

// net reads /proc/1/net/dev: the interfaces of process 1, whatever this process's network namespace.
func (c *Collector) net(s *sample) error {
	var devices procfs.NetDev
	first, err := c.fs.Proc(1)
	if err == nil {
		devices, err = first.NetDev()
	}
	if err != nil {
		if devices, err = c.fs.NetDev(); err != nil {
			return err
		}
	}
	if c.set.exclude != nil {
		maps.DeleteFunc(devices, func(name string, _ procfs.NetDevLine) bool { return c.set.exclude.MatchString(name) })
	}
	names := slices.Sorted(maps.Keys(devices))
	all := netTable()
	for _, name := range names[:c.bounded("net", len(names))] {
		line := devices[name]
		for _, m := range all {
			s.count("net/"+m.id, m.value(&line), display.Safe(name, maxLabel))
		}
	}
	return nil
}

// maxLabel bounds a label whose value comes from elsewhere.
const maxLabel = 256
