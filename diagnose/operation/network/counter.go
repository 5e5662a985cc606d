package network

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/procfs"

	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// Counters of packets that listeners dropped.
const (
	listenOverflows = "TcpExt.ListenOverflows"
	handshakesFull  = "TcpExt.TCPReqQFullDrop"
	listenDrops     = "TcpExt.ListenDrops"
)

// readEvery is how often counters are read while waiting for one to grow.
const readEvery = 200 * time.Millisecond

// growth watches the counters of a namespace during the window, or until enough returns true. It
// returns the growth of the counters that grew, and how long it watched.
func growth(h operation.Host, ctx context.Context, p *place, window time.Duration, enough func(grew map[string]uint64) bool) (map[string]uint64, time.Duration, error) {
	began := time.Now()
	before, err := h.FS.NetCounters(p.pid)
	if err != nil {
		return nil, 0, err
	}
	for {
		if err := operation.Pause(ctx, min(readEvery, window-time.Since(began))); err != nil {
			return nil, 0, err
		}
		after, err := h.FS.NetCounters(p.pid)
		if err != nil {
			return nil, 0, err
		}
		// The process may have ended, and its PID may belong to a process elsewhere.
		if inode, err := h.FS.NetNS(p.pid); err != nil || inode != p.inode {
			return nil, 0, fmt.Errorf("process %d has left the network namespace", p.pid)
		}
		grew := grew(before, after)
		if took := time.Since(began); took >= window || enough(grew) {
			return grew, took.Round(time.Millisecond), nil
		}
	}
}

// grew returns the growth of the counters that have grown.
func grew(before, after map[string]uint64) map[string]uint64 {
	grew := map[string]uint64{}
	for name, n := range after {
		if d := increase(before[name], n); d > 0 {
			grew[name] = d
		}
	}
	return grew
}

// increase returns the growth of a counter; a counter that was reset starts from zero.
func increase(before, after uint64) uint64 {
	if after < before {
		return after
	}
	return after - before
}

// conntrack is the connection tracking table of a namespace, with its counters since the namespace
// was created.
type conntrack struct {
	netlook.Conntrack
	drop, insertFailed uint64 // packets dropped, connections not inserted
	earlyDrop          uint64 // connections dropped in favour of newer ones
}

// since returns how much the counters have grown.
func (c *conntrack) since(was *conntrack) conntrack {
	return conntrack{
		drop: increase(was.drop, c.drop), insertFailed: increase(was.insertFailed, c.insertFailed), earlyDrop: increase(was.earlyDrop, c.earlyDrop),
	}
}

// noPlace returns how many packets were dropped because the table was full. From 5.10 to 7.0 the
// kernel counts such a packet only as drop. If two connections race for one entry, like DNS queries
// from one socket or ports chosen by SNAT, it counts the loser's packet as both drop and
// insert_failed (nf_ct_resolve_clash), even if the table is almost empty. It counts some packets
// only as insert_failed, for example because of long hash chains, so the result may be too low;
// then the table's count shows that it is full.
func (c *conntrack) noPlace() uint64 { return c.drop - min(c.drop, c.insertFailed) }

func (c *conntrack) percent() uint64 {
	if c.Max == 0 {
		return 0
	}
	return c.Count * 100 / c.Max
}

func (c *conntrack) String() string { return fmt.Sprintf("%s (%d %%)", &c.Conntrack, c.percent()) }

// readConntrack reads the table of a namespace.
func readConntrack(h operation.Host, p *place) (c conntrack, err error) {
	if c.Conntrack, err = netlook.ReadConntrack(h.FS, p.inode, p.pid); err != nil {
		return c, err
	}
	proc, err := proc(h, p)
	if err != nil {
		return c, err
	}
	stats, err := proc.ConntrackStat()
	if err != nil {
		return c, fmt.Errorf("counters of tracked connections: %w", err)
	}
	for _, s := range stats { // one per CPU
		c.drop += s.Drop
		c.insertFailed += s.InsertFailed
		c.earlyDrop += s.EarlyDrop
	}
	return c, nil
}

// proc returns the procfs of a process in the place, for the files below /proc/PID/net.
func proc(h operation.Host, p *place) (procfs.FS, error) {
	return procfs.NewFS(h.FS.Path("/proc/" + strconv.Itoa(p.pid)))
}
