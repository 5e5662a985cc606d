package collector

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/netlook"
)

const (
	// lookLimit bounds all lookups for one failure, answerLimit one lookup. They take about 300 and
	// 50 µs, or 100 ms to list a namespace with 100,000 sockets. The margin is for a node that is
	// so short of CPU that its probes fail.
	lookLimit   = 2 * time.Second
	answerLimit = 500 * time.Millisecond
	// lookRate is how many failures a second are looked up, one after another: at 0.3 ms each they
	// take 1.5 % of a CPU. lookBurst is how many are looked up at once after a quiet period: a
	// fault of a node's network fails many probes in the same second, and verdicts without a lookup
	// are worse.
	lookRate  = 50
	lookBurst = 100
	// sharedFor is how long the result of a lookup is reused for connections to the same place that
	// were under way at that time, because they met the same state. maxShared bounds the places
	// cached.
	sharedFor = time.Second
	maxShared = 256
	// maxListening bounds the listed addresses where something else listens: a pod has one or two.
	maxListening = 8
)

// looked is what a lookup in the kernel found after a failure. Zero means "not looked up".
type looked struct {
	skipped  bool // too many failures at once
	route    netlook.Route
	neighbor netlook.Neighbor
	// home is the namespace of the destination; 0 if it is not on this node, or not found.
	home      uint32
	listener  netlook.Listener
	child     netlook.ChildState
	overflows uint64 // of home's accept queues, within overIn
	overIn    time.Duration
	listening string            // what listens in the namespace that refused, in words
	conntrack netlook.Conntrack // of the opener's namespace
}

// question is what a lookup needs to know about a failure.
type question struct {
	place
	pid         uint32 // the thread that connected
	src         netip.AddrPort
	started     time.Time
	established bool
}

// place is the part of a question by which lookups are shared: from where, to where, what failed.
type place struct {
	netns, targetNetNS uint32 // the opener's and, if the target declares it, the destination's
	dst                netip.AddrPort
	notSent, reset     bool
}

// pastLook is a lookup that is not specific to one connection.
type pastLook struct {
	at time.Time
	looked
}

// prober makes lookups after failures. It must be used by one goroutine.
type prober struct {
	fs    hostfs.FS
	looks *rate.Limiter
	// over counts failures that were not looked up.
	over uint64
	past *lru.Cache[place, pastLook]

	namespaces  *netlook.Namespaces
	homes       *lru.Cache[netip.Addr, home]
	overflows   map[uint32]*overflowSamples
	overflowsAt time.Time
}

func newProber(fs hostfs.FS) *prober {
	homes, err := lru.New[netip.Addr, home](maxHomes)
	past, pastErr := lru.New[place, pastLook](maxShared)
	if err := errors.Join(err, pastErr); err != nil {
		panic(err) // only for a size below 1
	}
	return &prober{fs: fs, namespaces: netlook.NewNamespaces(fs, answerLimit), looks: rate.NewLimiter(lookRate, lookBurst), past: past, homes: homes, overflows: map[uint32]*overflowSamples{}}
}

// take reports whether a failure may be looked up, and counts those that may not.
func (p *prober) take(now time.Time) bool {
	may := p.looks.AllowN(now, 1)
	if !may {
		p.over++
	}
	return may
}

// look returns, within lookLimit, what it has found or recently found for another connection.
func (p *prober) look(q *question) looked {
	if q.established && q.reset {
		return looked{} // a reset is the verdict, whatever a lookup would find
	}
	now := time.Now()
	// Each established connection may have been accepted by another process.
	shared := !q.established
	if past, ok := p.past.Get(q.place); ok && shared && now.Sub(past.at) <= sharedFor && q.started.Before(past.at) {
		return past.looked
	}
	if !p.take(now) {
		return looked{skipped: true}
	}
	l := p.lookNow(q, now.Add(lookLimit))
	if shared {
		p.past.Add(q.place, pastLook{at: now, looked: l})
	}
	return l
}

func (p *prober) lookNow(q *question, end time.Time) (l looked) {
	opener, err := p.namespaces.Open(q.netns, int(q.pid))
	if err == nil {
		defer opener.Close()
		// A reset proves that there was a route.
		if !q.reset {
			l.route = opener.RouteTo(q.dst.Addr())
		} else if r := opener.RouteTo(q.dst.Addr()); r.Local {
			l.route = r
		}
		if !q.established && !q.reset && l.route.Errno == 0 && l.route.Known && !l.route.Local && time.Now().Before(end) {
			l.neighbor = opener.Neighbor(&l.route)
		}
	}
	if !q.established && !q.reset {
		l.conntrack = p.namespaces.Conntrack(q.netns, int(q.pid))
	}
	if q.notSent || time.Now().After(end) {
		return l
	}
	target := opener
	if l.route.Known && l.route.Local || q.dst.Addr().IsLoopback() {
		l.home = q.netns
	} else if l.home, target = p.home(q, end); target != nil {
		defer target.Close()
	}
	if target == nil {
		l.home = 0
		return l
	}
	if time.Now().Before(end) {
		l.listener = target.Listener(q.dst)
	}
	if q.reset && l.home != q.netns && l.listener.Known && !l.listener.Present && time.Now().Before(end) {
		l.listening = listeningText(target.ListeningAt(q.dst.Addr(), maxListening))
	}
	if q.established && q.src.Port() != 0 && time.Now().Before(end) {
		l.child = target.Child(q.dst, q.src)
	}
	l.overflows, l.overIn = p.overflowsSince(l.home, q.started)
	return l
}

// listeningText describes what listens in a namespace where nothing listens at the target.
func listeningText(l netlook.Listening) string {
	switch {
	case !l.Known:
		return ""
	case len(l.At) == 0:
		return "nothing listens there at all"
	case l.More > 0:
		return fmt.Sprintf("listens on %s, and %d more", strings.Join(l.At, ", "), l.More)
	}
	return "listens on " + strings.Join(l.At, ", ")
}

const (
	// homesFor is how long the namespace of an address is cached while it has the address: a pod
	// keeps its address for life. noHomeFor is how long the absence of a namespace is cached:
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
// declares, else the node's only one where the address is local; nil if there is none.
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
	if h.inode != 0 {
		if v, err := p.namespaces.Open(h.inode, 0); err == nil {
			return h.inode, v
		}
	}
	return 0, nil
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

const (
	// overflowsEvery is how often counters of the targets' namespaces (maxOverflows) are read.
	overflowsEvery = 5 * time.Second
	maxOverflows   = 256
)

// overflowSamples are a namespace's last two readings, so that one precedes any recent connection.
type overflowSamples struct {
	last, before     uint64
	lastAt, beforeAt time.Time
}

// sample reads the overflow counters of the namespaces that contain targets.
func (p *prober) sample(now time.Time, targets func() []Target) {
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
	for _, t := range targets() {
		add(t.TargetNetNS)
		if t.Address.IsLoopback() {
			add(t.NetNS)
		}
	}
	for _, h := range p.homes.Values() {
		add(h.inode)
	}
	maps.DeleteFunc(p.overflows, func(inode uint32, _ *overflowSamples) bool { return !want[inode] })
	for inode := range want {
		n, ok := p.readOverflows(inode)
		if !ok {
			continue
		}
		s := p.overflows[inode]
		if s == nil {
			s = &overflowSamples{}
			p.overflows[inode] = s
		}
		s.before, s.beforeAt = s.last, s.lastAt
		s.last, s.lastAt = n, now
	}
}

func (p *prober) readOverflows(inode uint32) (uint64, bool) {
	pid := p.namespaces.Process(inode)
	if pid == 0 {
		return 0, false
	}
	n, err := p.fs.ListenOverflows(pid)
	return n, err == nil
}

// overflowsSince returns how often an accept queue of the namespace overflowed in a period that
// begins before started, and its length. It returns 0 if no reading is that old.
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
