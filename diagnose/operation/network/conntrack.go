package network

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/prometheus/procfs"

	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// errNoConntrack is returned if the kernel does not track connections.
var errNoConntrack = errors.New("connections are not tracked here (no nf_conntrack)")

// conntrack is the connection tracking table of a namespace.
type conntrack struct {
	count, limit uint64
	// Packets dropped, connections not inserted, and connections dropped in favour of newer ones,
	// since the namespace was created.
	drop, insertFailed, earlyDrop uint64
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
// insert_failed (nf_ct_resolve_clash), however empty the table is. It counts some packets only as
// insert_failed, for example because of long hash chains, so the result may be too low; then the
// table's count shows that it is full.
func (c *conntrack) noPlace() uint64 { return c.drop - min(c.drop, c.insertFailed) }

func (c *conntrack) percent() uint64 {
	if c.limit == 0 {
		return 0
	}
	return c.count * 100 / c.limit
}

func (c *conntrack) String() string {
	return fmt.Sprintf("%d of %d connections tracked (%d %%)", c.count, c.limit, c.percent())
}

// readConntrack reads the table of a namespace. It enters the namespace, because files below
// /proc/sys/net show the settings of the reader's namespace.
func readConntrack(h operation.Host, p *place) (c conntrack, err error) {
	err = netlook.Within(h.FS, p.inode, p.pid, func() error {
		for name, into := range map[string]*uint64{"nf_conntrack_count": &c.count, "nf_conntrack_max": &c.limit} {
			text, err := h.FS.Sysctl("net/netfilter/" + name)
			if errors.Is(err, fs.ErrNotExist) {
				return errNoConntrack
			}
			if err != nil {
				return err
			}
			if *into, err = strconv.ParseUint(text, 10, 64); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
	if err != nil {
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
