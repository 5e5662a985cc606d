package collector

import (
	"net/netip"
	"time"
)

const (
	// maxNamespaces that are searched for an address; a node runs at most some
	// hundred pods.
	maxNamespaces = 1024
	// namespacesFor is how long a list of namespaces is good for: it costs one
	// readlink a process.
	namespacesFor = 2 * time.Second
	// homesFor is how long the namespace of an address is believed, as long as
	// the address is there: pods keep theirs for life. noHomeFor is how long it
	// is believed that there is none, which costs a search of them all, and
	// unknownFor how long none is looked for again after a search that took too
	// long.
	homesFor   = 30 * time.Second
	noHomeFor  = 5 * time.Second
	unknownFor = time.Second
	maxHomes   = 4096
)

// home is where an address was found.
type home struct {
	inode uint32 // 0: nowhere, or in several places
	until time.Time
}

// open opens a namespace, through the process given if it is in it.
func (p *prober) open(inode uint32, pid int) (*netView, error) {
	if pid != 0 {
		// A thread whose connect() failed may end at any moment, also during this.
		if v, err := viewOf(p.fs, inode, pid, answerLimit); err == nil {
			return v, nil
		}
	}
	return viewOf(p.fs, inode, p.processIn(inode), answerLimit)
}

// processIn returns a process of a namespace, or 0.
func (p *prober) processIn(inode uint32) int {
	find := func() int {
		for _, ns := range p.namespaces {
			if ns.Inode == inode {
				// The process may have ended, and its number be another's.
				if got, err := p.fs.NetNS(ns.PID); err == nil && got == inode {
					return ns.PID
				}
			}
		}
		return 0
	}
	if pid := find(); pid != 0 {
		return pid
	}
	if p.list(time.Now()) {
		return find()
	}
	return 0
}

// list reads the namespaces, unless that was done just now.
func (p *prober) list(now time.Time) bool {
	if now.Sub(p.namespacesAt) < namespacesFor {
		return false
	}
	p.namespacesAt = now
	list, err := p.fs.NetNamespaces(maxNamespaces)
	if err != nil {
		return false
	}
	p.namespaces = list
	return true
}

// renew forgets that namespaces or addresses were not found. A new target's
// namespace is often newer than what is known of them.
func (p *prober) renew() {
	p.namespacesAt = time.Time{}
	for _, addr := range p.homes.Keys() {
		if h, ok := p.homes.Peek(addr); ok && h.inode == 0 {
			p.homes.Remove(addr)
		}
	}
}

// home opens the namespace that has the destination where the opener's own has
// not: the one that the target declares, else the only one on the node where the
// address is local. Without one the view is nil.
func (p *prober) home(q *question, end time.Time) (uint32, *netView) {
	if q.targetNetNS != 0 {
		if v, err := p.open(q.targetNetNS, 0); err == nil {
			return q.targetNetNS, v
		}
	}
	addr := q.dst.Addr()
	if h, ok := p.homes.Get(addr); ok && time.Now().Before(h.until) {
		if h.inode == 0 {
			return 0, nil
		}
		// The kernel gives a namespace the number of one that is gone.
		if v, err := p.open(h.inode, 0); err == nil {
			if v.has(addr) {
				return h.inode, v
			}
			v.close()
		}
	}
	h := p.search(addr, end)
	p.homes.Add(addr, h)
	if h.inode == 0 {
		return 0, nil
	}
	v, err := p.open(h.inode, 0)
	if err != nil {
		return 0, nil
	}
	return h.inode, v
}

// search looks for the only namespace where an address is local.
func (p *prober) search(addr netip.Addr, end time.Time) home {
	p.list(time.Now())
	found := uint32(0)
	for _, ns := range p.namespaces {
		now := time.Now()
		if now.After(end) {
			return home{until: now.Add(unknownFor)} // one that was found may not be the only one
		}
		v, err := viewOf(p.fs, ns.Inode, ns.PID, answerLimit)
		if err != nil {
			continue
		}
		has := v.has(addr)
		v.close()
		if !has {
			continue
		}
		if found != 0 {
			found = 0
			break
		}
		found = ns.Inode
	}
	h := home{inode: found, until: time.Now().Add(homesFor)}
	if found == 0 {
		h.until = time.Now().Add(noHomeFor)
	}
	return h
}
