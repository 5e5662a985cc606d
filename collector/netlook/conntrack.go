package netlook

import (
	"fmt"
	"strconv"
)

// Conntrack is how full a namespace's table of tracked connections is.
type Conntrack struct {
	Known      bool // connections are tracked there, and it could be read
	Count, Max uint64
}

// Full reports whether new connections find no place, or did a moment ago: the kernel
// throws out old entries and takes new ones all the time.
func (c *Conntrack) Full() bool { return c.Known && c.Max > 0 && c.Count >= c.Max-c.Max/100 }

// String is the figure in words.
func (c *Conntrack) String() string {
	return fmt.Sprintf("%d of %d connections tracked", c.Count, c.Max)
}

// Conntrack reads a namespace's table, by the process given if it is in it, else (or
// with 0) by any. What is below /proc/sys/net is that of the reader's namespace, so it
// is read inside.
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
