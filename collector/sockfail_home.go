package collector

import (
	"net/netip"
	"time"

	"github.com/kernosis/kernosis/collector/netlook"
)

const (
	// homesFor is how long the namespace of an address is cached, while the address is still there:
	// pods keep theirs for life. noHomeFor is how long it is cached that there is none, because
	// finding that out takes a search of all namespaces. unknownFor is the pause after a search
	// that took too long.
	homesFor   = 30 * time.Second
	noHomeFor  = 5 * time.Second
	unknownFor = time.Second
	maxHomes   = 4096
)

// home is the namespace where an address was found.
type home struct {
	inode uint32 // 0: nowhere, or in several places
	until time.Time
}

// renew drops the cached failures to find namespaces or addresses. A new target's namespace is
// often newer than the cache.
func (p *prober) renew() {
	p.namespaces.Forget()
	for _, addr := range p.homes.Keys() {
		if h, ok := p.homes.Peek(addr); ok && h.inode == 0 {
			p.homes.Remove(addr)
		}
	}
}

// home opens the destination's namespace if it is not the opener's: the one that the target
// declares, else the only one on the node where the address is local. If there is none, the view is
// nil.
func (p *prober) home(q *question, end time.Time) (uint32, *netlook.View) {
	if q.targetNetNS != 0 {
		if v, err := p.namespaces.Open(q.targetNetNS, 0); err == nil {
			return q.targetNetNS, v
		}
	}
	addr := q.dst.Addr()
	if h, ok := p.homes.Get(addr); ok && time.Now().Before(h.until) {
		if h.inode == 0 {
			return 0, nil
		}
		// The kernel may have reused the number for a new namespace.
		if v, err := p.namespaces.Open(h.inode, 0); err == nil {
			has, err := v.Has(addr)
			if has {
				return h.inode, v
			}
			v.Close()
			if err != nil {
				return 0, nil // the kernel would not answer a search either
			}
		}
	}
	h := p.search(addr, end)
	p.homes.Add(addr, h)
	if h.inode == 0 {
		return 0, nil
	}
	v, err := p.namespaces.Open(h.inode, 0)
	if err != nil {
		return 0, nil
	}
	return h.inode, v
}

// search finds the only namespace where an address is local.
func (p *prober) search(addr netip.Addr, end time.Time) home {
	found := p.namespaces.Home(addr, end)
	now := time.Now()
	switch {
	case !found.Whole:
		return home{until: now.Add(unknownFor)}
	case found.Inode == 0:
		return home{until: now.Add(noHomeFor)}
	}
	return home{inode: found.Inode, until: now.Add(homesFor)}
}
