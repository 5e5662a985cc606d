package netlook

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// ErrNoConntrack is returned if the kernel does not track connections.
var ErrNoConntrack = errors.New("connections are not tracked here (no nf_conntrack)")

// Conntrack is the fill level of a namespace's connection tracking table.
type Conntrack struct {
	Known      bool // connections are tracked there, and the table could be read
	Count, Max uint64
}

// Full reports whether new connections find no place, or didn't a moment ago: the kernel
// constantly evicts old entries and adds new ones.
func (c *Conntrack) Full() bool { return c.Known && c.Max > 0 && c.Count >= c.Max-c.Max/100 }

// String returns the fill level as text.
func (c *Conntrack) String() string {
	return fmt.Sprintf("%d of %d connections tracked", c.Count, c.Max)
}

// ReadConntrack reads a namespace's table through process pid, as [Within] enters the namespace:
// /proc/sys/net shows the reader's.
func ReadConntrack(host hostfs.FS, inode uint32, pid int) (c Conntrack, err error) {
	err = Within(host, inode, pid, func() error {
		for name, into := range map[string]*uint64{"nf_conntrack_count": &c.Count, "nf_conntrack_max": &c.Max} {
			text, err := host.Sysctl("net/netfilter/" + name)
			if errors.Is(err, fs.ErrNotExist) {
				return ErrNoConntrack
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
	c.Known = err == nil
	return c, err
}

// Conntrack reads a namespace's table, through process pid if it is in the namespace, else (or
// with 0) through any other.
func (n *Namespaces) Conntrack(inode uint32, pid int) Conntrack {
	if own(inode) {
		pid = 0
	} else if got, err := n.fs.NetNS(pid); pid == 0 || err != nil || got != inode {
		pid = n.Process(inode)
	}
	c, _ := ReadConntrack(n.fs, inode, pid)
	return c
}
