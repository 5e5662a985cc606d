package collector

import (
	"net/netip"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

const (
	// lookLimit bounds one failure's look-ups; each answer takes some 50 µs.
	lookLimit = 200 * time.Millisecond
	// answerLimit bounds one of them: a namespace with 100,000 sockets answers
	// within it.
	answerLimit = 100 * time.Millisecond
	// lookRate is how many failures a second are looked into: enough for each
	// probe of a node with 200 pods that fail at once, little enough to cost
	// less than 5 % of a CPU.
	lookRate = 20
	// maxNamespaces that are searched for an address; a node runs at most some
	// hundred pods.
	maxNamespaces = 1024
	// namespacesFor is how long a list of namespaces is good for: it costs one
	// readlink a process.
	namespacesFor = 2 * time.Second
	// homesFor is how long the namespace of an address is believed, as long as
	// it exists: pods keep their address for life. noHomeFor is how long it is
	// believed that there is none, which costs a search of them all.
	homesFor  = 30 * time.Second
	noHomeFor = 5 * time.Second
	maxHomes  = 4096
	// overflowsEvery is how often the counters of the targets' namespaces are
	// read, of at most maxOverflows of them.
	overflowsEvery = 5 * time.Second
	maxOverflows   = 256
)

// looked is what a look at the kernel after a failure found. Its zero value is
// "not looked".
type looked struct {
	skipped  bool // too many failures at once
	route    routeFact
	neighbor neighborFact
	// home is the namespace that has the destination; 0 where it is not on this
	// node, or not found.
	home      uint32
	listener  listenerFact
	child     childState
	overflows uint64 // of home's accept queues, in the time overflowsIn
	overIn    time.Duration
}

// question is what a look-up needs to know of a failure.
type question struct {
	netns       uint32 // of the opener
	pid         uint32 // the thread that connected
	src, dst    netip.AddrPort
	targetNetNS uint32
	started     time.Time
	established bool
	notSent     bool
	reset       bool
}

// home is where an address was found.
type home struct {
	inode uint32 // 0: nowhere, or in several places
	at    time.Time
}

// overflowSamples are two readings of one namespace's counter, so that one of
// them is from before any recent connection.
type overflowSamples struct {
	last, before     uint64
	lastAt, beforeAt time.Time
}

// prober answers questions after failures. It belongs to one goroutine.
type prober struct {
	fs     hostfs.FS
	tokens float64
	filled time.Time
	// over counts failures that were not looked into.
	over uint64

	namespaces   []hostfs.NetNamespace
	namespacesAt time.Time
	homes        *lru.Cache[netip.Addr, home]
	overflows    map[uint32]*overflowSamples
	overflowsAt  time.Time
}

func newProber(fs hostfs.FS) *prober {
	homes, err := lru.New[netip.Addr, home](maxHomes)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &prober{fs: fs, tokens: lookRate, homes: homes, overflows: map[uint32]*overflowSamples{}}
}

// take takes one token of the bucket.
func (p *prober) take(now time.Time) bool {
	p.tokens = min(lookRate, p.tokens+lookRate*now.Sub(p.filled).Seconds())
	p.filled = now
	if p.tokens < 1 {
		p.over++
		return false
	}
	p.tokens--
	return true
}

// look answers within lookLimit, with what it has by then.
func (p *prober) look(q *question) (l looked) {
	now := time.Now()
	if !p.take(now) {
		l.skipped = true
		return l
	}
	end := now.Add(lookLimit)
	opener, err := p.open(q.netns, int(q.pid))
	if err == nil {
		defer opener.close()
		// What came back proves that there was a way.
		if !q.reset {
			l.route = opener.routeTo(q.dst.Addr())
		} else if r := opener.routeTo(q.dst.Addr()); r.local {
			l.route = r
		}
		if !q.established && !q.reset && l.route.errno == 0 && l.route.known && !l.route.local && time.Now().Before(end) {
			l.neighbor = opener.neighbor(&l.route)
		}
	}
	if q.notSent || time.Now().After(end) {
		return l
	}
	target := opener
	if l.home = p.homeOf(q, &l.route, end); l.home == 0 {
		return l
	}
	if l.home != q.netns || target == nil {
		if target, err = p.open(l.home, 0); err != nil {
			l.home = 0
			return l
		}
		defer target.close()
	}
	if time.Now().Before(end) {
		l.listener = target.listener(q.dst)
	}
	if q.established && q.src.Port() != 0 && time.Now().Before(end) {
		l.child = target.child(q.dst, q.src)
	}
	l.overflows, l.overIn = p.overflowsSince(l.home, q.started)
	return l
}

// open opens a namespace, through the process given if it is in it.
func (p *prober) open(inode uint32, pid int) (*netView, error) {
	if pid != 0 {
		if ns, err := p.fs.NetNS(pid); err == nil && ns == inode {
			return viewOf(p.fs, inode, pid, answerLimit)
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

// homeOf returns the namespace that has the destination: the opener's own where
// the address is local there (loopback is everywhere), else the one that the
// target declares, else the only one on the node where it is local.
func (p *prober) homeOf(q *question, r *routeFact, end time.Time) uint32 {
	switch {
	case r.known && r.local, q.dst.Addr().IsLoopback():
		return q.netns
	case q.targetNetNS != 0 && (p.processIn(q.targetNetNS) != 0 || ownNetNS(q.targetNetNS)):
		return q.targetNetNS
	}
	now := time.Now()
	h, ok := p.homes.Get(q.dst.Addr())
	age := now.Sub(h.at)
	if !ok || age > homesFor || h.inode == 0 && age > noHomeFor || h.inode != 0 && p.processIn(h.inode) == 0 {
		h = home{inode: p.search(q.dst.Addr(), end), at: now}
		p.homes.Add(q.dst.Addr(), h)
	}
	return h.inode
}

func (p *prober) search(addr netip.Addr, end time.Time) uint32 {
	p.list(time.Now())
	found := uint32(0)
	for _, ns := range p.namespaces {
		if time.Now().After(end) {
			return 0 // not all were searched, so one found may not be the only one
		}
		v, err := viewOf(p.fs, ns.Inode, ns.PID, answerLimit)
		if err != nil {
			continue
		}
		r := v.routeTo(addr)
		v.close()
		if !r.local {
			continue
		}
		if found != 0 {
			return 0
		}
		found = ns.Inode
	}
	return found
}

// sample reads the overflow counters of the namespaces where targets are.
func (p *prober) sample(now time.Time, targets func(fn func(Target))) {
	if now.Sub(p.overflowsAt) < overflowsEvery {
		return
	}
	p.overflowsAt = now
	want := map[uint32]bool{}
	add := func(inode uint32) {
		if inode != 0 && len(want) < maxOverflows {
			want[inode] = true
		}
	}
	targets(func(t Target) {
		add(t.TargetNetNS)
		if t.Address.IsLoopback() {
			add(t.NetNS)
		}
	})
	for _, h := range p.homes.Values() {
		add(h.inode)
	}
	for inode := range p.overflows {
		if !want[inode] {
			delete(p.overflows, inode)
		}
	}
	for inode := range want {
		n, ok := p.readOverflows(inode)
		if !ok {
			continue
		}
		s := p.overflows[inode]
		if s == nil {
			p.overflows[inode] = &overflowSamples{last: n, lastAt: now}
			continue
		}
		s.before, s.beforeAt = s.last, s.lastAt
		s.last, s.lastAt = n, now
	}
}

func (p *prober) readOverflows(inode uint32) (uint64, bool) {
	pid := p.processIn(inode)
	if pid == 0 {
		return 0, false
	}
	stats, err := p.fs.ListenStats(pid)
	return stats.Overflows, err == nil
}

// overflowsSince returns how often an accept queue of the namespace overflowed
// in a time that begins before the one given; 0 where no reading is that old.
func (p *prober) overflowsSince(inode uint32, started time.Time) (uint64, time.Duration) {
	s := p.overflows[inode]
	if s == nil {
		return 0, 0
	}
	base, at := s.last, s.lastAt
	if at.After(started) {
		base, at = s.before, s.beforeAt
	}
	if at.IsZero() || at.After(started) {
		return 0, 0
	}
	n, ok := p.readOverflows(inode)
	if !ok || n <= base {
		return 0, 0
	}
	return n - base, time.Since(at)
}

// text is the fact in words.
func (r *routeFact) text() string {
	switch {
	case !r.known:
		return ""
	case r.errno == unix.ENETUNREACH:
		return "route: none (ENETUNREACH)"
	case r.errno == unix.EINVAL:
		return "route: blackhole (EINVAL)"
	case r.errno == unix.EACCES:
		return "route: prohibit (EACCES)"
	case r.errno == unix.EHOSTUNREACH:
		return "route: unreachable (EHOSTUNREACH)"
	case r.errno != 0:
		return "route: refused (" + hostfs.ErrnoName(int32(r.errno)) + ")"
	case r.local:
		return "route: local to the opener's namespace"
	}
	return "route: via " + r.dev + ", next hop " + r.via.String()
}
