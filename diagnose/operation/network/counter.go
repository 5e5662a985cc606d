package network

import (
	"context"
	"fmt"
	"time"

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
// returns the growth of those that have grown, and how long it watched.
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
