package netlook

import (
	"fmt"
	"strconv"
)

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

// Conntrack reads a namespace's table, through process pid if it is in the namespace, else (or
// with 0) through any other. /proc/sys/net shows the reader's namespace, so it is read inside.
func (n *Namespaces) Conntrack(inode uint32, pid int) (c Conntrack) {
	read := func() error {
		for name, into := range map[string]*uint64{"nf_conntrack_count": &c.Count, "nf_conntrack_max": &c.Max} {
			text, err := n.fs.Sysctl("net/netfilter/" + name)
			if err != nil {
				return err
			}
			if *into, err = strconv.ParseUint(text, 10, 64); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	}
	if own(inode) {
		c.Known = read() == nil
		return c
	}
	if pid != 0 {
		if got, err := n.fs.NetNS(pid); err != nil || got != inode {
			pid = 0
		}
	}
	if pid == 0 {
		pid = n.Process(inode)
	}
	c.Known = Within(n.fs, inode, pid, read) == nil
	return c
}
