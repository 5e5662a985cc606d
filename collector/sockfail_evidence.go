package collector

import (
	"errors"
	"fmt"
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
	// 50 µs, or 100 ms to list a namespace with 100,000 sockets. The rest is for a node so short of
	// CPU that its probes fail.
	lookLimit   = 2 * time.Second
	answerLimit = 500 * time.Millisecond
	// lookRate is how many failures a second are looked up, one after another: at 0.3 ms each they
	// take 1.5 % of a CPU. lookBurst is how many at once, after a quiet period: what breaks a
	// node's network fails many probes in the same second, and verdicts without a lookup are worse.
	lookRate  = 50
	lookBurst = 100
	// sharedFor is how long a lookup also serves other connections to the same place that were
	// already under way when it was made: they met the same state. maxShared bounds the places
	// cached.
	sharedFor = time.Second
	maxShared = 256
	// maxListening bounds the listed addresses where something else listens: a pod has one or two.
	maxListening = 8
)

// looked is the result of a lookup in the kernel after a failure. The zero value means "not looked
// up".
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
	netns       uint32 // of the opener
	pid         uint32 // the thread that connected
	src, dst    netip.AddrPort
	targetNetNS uint32
	started     time.Time
	established bool
	notSent     bool
	reset       bool
}

// place is the key by which lookups are shared: source namespace, destination and the kind of
// failure.
type place struct {
	netns, targetNetNS uint32
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

// look returns within lookLimit what it has found by then, or what it recently found for another
// connection.
func (p *prober) look(q *question) looked {
	if q.established && q.reset {
		return looked{} // a reset is the verdict, whatever a lookup would find
	}
	now := time.Now()
	at := place{netns: q.netns, targetNetNS: q.targetNetNS, dst: q.dst, notSent: q.notSent, reset: q.reset}
	// Who accepted an established connection differs for each connection.
	shared := !q.established
	if past, ok := p.past.Get(at); ok && shared && now.Sub(past.at) <= sharedFor && q.started.Before(past.at) {
		return past.looked
	}
	if !p.take(now) {
		return looked{skipped: true}
	}
	l := p.lookNow(q, now.Add(lookLimit))
	if shared {
		p.past.Add(at, pastLook{at: now, looked: l})
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
