package observe

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
)

// Observer turns failed connections of kubelet into outcomes of probes.
type Observer struct {
	cfg    Config
	vitals *vitals
	wake   chan struct{} // pods have changed, or something waits
	pods   atomic.Bool   // pods have changed
	all    atomic.Bool   // the Manager has all pods

	mu      sync.Mutex
	index   *index
	before  *index // the previous one, used until upTo
	upTo    time.Time
	held    []*held
	stats   Stats
	looked  looked
	polling bool      // kubelet's counts are available
	polled  time.Time // time of the latest poll
	pollAt  time.Time // time of the next poll
	// everPolled: kubelet's counts have been read at least once.
	everPolled   bool
	polledBefore time.Time // the last answered poll but one
	answered     time.Time
	fast         *rate.Limiter // limits polls that are earlier than usual

	// These belong to Run's goroutine.
	kubelet kubelets
	state   map[string]string // of each part, as last reported
	stale   bool              // the targets in use are not those of the index
	listed  bool              // the index has all pods
	words   *rate.Limiter     // limits requests to the API server
	// unanswered is the pod of the latest request to the API server, if that failed; it is repeated at
	// askAt.
	unanswered *probe.Pod
	askAt      time.Time
}

// looked caches the latest inspection of a container, for other probes of the same connection.
type looked struct {
	ev    *event.Event
	id    string
	facts facts
}

// pollEvery is how often kubelet's counts are polled, pollAtMost the shortest time between two polls.
const pollEvery, pollAtMost = 10 * time.Second, 5 * time.Second

// New returns an Observer that observes nothing until Run is called.
func New(cfg Config) *Observer {
	return &Observer{
		cfg: cfg, vitals: newVitals(cfg.FS), wake: make(chan struct{}, 1), index: newIndex(nil, nil), before: newIndex(nil, nil),
		fast: rate.NewLimiter(fastRate, fastBurst), words: rate.NewLimiter(wordsRate, wordsBurst), state: map[string]string{}, stale: true,
		kubelet: kubelets{fs: cfg.FS, comms: cfg.Comms, inPod: func(uid string) bool {
			_, ok := cfg.Manager.Pod(uid)
			return ok
		}},
	}
}

// Changed must be called when pods of the Manager have changed. It does not block.
func (o *Observer) Changed() {
	o.pods.Store(true)
	o.poke()
}

// Listed must be called once the Manager has all pods of the node. Until then the Observer reads no
// counts of kubelet and sets no targets, and an earlier run's targets stay. It does not block.
func (o *Observer) Listed() {
	o.all.Store(true)
	o.Changed()
}

// Group returns the path of a container's cgroup that has its CPU limit; empty: it is not known. The
// container is given by its ID without the runtime.
func (o *Observer) Group(id string) string { return o.vitals.group(id) }

// poke wakes the goroutine of Run. It does not block.
func (o *Observer) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Stats returns the counts of observed outcomes.
func (o *Observer) Stats() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.stats
	s.Targets, s.Unwatched = len(o.index.places), o.index.unwatched
	return s
}

// Take consumes an event that reports a connection to the address and port of a probe. It returns
// false for other events, which it leaves to the caller. A connection that kubelet has opened is
// reported as a probe's; one that another process has opened is dropped. Take is called from the
// source's goroutine and keeps nothing of the event.
func (o *Observer) Take(ev *event.Event) bool {
	if ev.Kind == event.OOMKill {
		o.vitals.oomKilled(ev)
		return false
	}
	if ev.SockFail == nil || ev.Conn == nil {
		return false
	}
	at := netip.AddrPortFrom(ev.Conn.Dst.Addr().Unmap(), ev.Conn.Dst.Port())
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.index.places[at]
	if p == nil || p.name != ev.SockFail.Target {
		// The pod may have been removed meanwhile.
		p = o.before.places[at]
		if p == nil || p.name != ev.SockFail.Target || time.Now().After(o.upTo) {
			return false
		}
		o.stats.Late++
		return true
	}
	if !o.kubelets(ev) {
		o.stats.Others++
		return true
	}
	o.take(ev, p)
	o.looked = looked{} // the event must not be used after this call
	return true
}

// kubelets reports whether kubelet has opened the connection.
func (o *Observer) kubelets(ev *event.Event) bool {
	if ev.Task == nil || !slices.Contains(o.cfg.Comms, ev.Task.Comm) {
		return false
	}
	if ev.Container == nil || ev.Container.PodUID == "" {
		return true
	}
	// A node may itself be a pod of another cluster. A process in a pod of this cluster is not
	// kubelet, whatever its name.
	_, here := o.cfg.Manager.Pod(ev.Container.PodUID)
	return !here
}

// take decides which probe a connection belongs to, and reports the outcome or holds it.
func (o *Observer) take(ev *event.Event, p *place) {
	now := time.Now()
	s := ev.SockFail
	c := connection{
		started: ev.Time.Add(-time.Duration(s.Duration)), duration: time.Duration(s.Duration),
		timedOut: timedOut(s.Verdict) && s.Errno == "",
	}
	ok := ev.Kind == event.SockFailRecovered
	// Until a container has started, only its startup probe is made.
	for _, one := range p.probes {
		const why = "the startup probe comes first"
		if one.key.Kind != probe.Startup {
			continue
		}
		ok := ok
		if s.Verdict == event.VerdictSlow {
			_, ok = slowOf([]*course{one}, c.duration)
		}
		if !ok && !one.container.Started && meaning(one.spec.Handler, s) == countsMaybe &&
			o.hold(&held{ev: ev, of: []*course{one}, why: why, conn: c, maybe: true}, now) {
			return
		}
		if o.hand(one, o.outcome(ev, one, judged{ok: ok, why: why}), c.started) {
			return
		}
	}
	rest := slices.DeleteFunc(slices.Clone(p.probes), func(c *course) bool { return c.key.Kind == probe.Startup })
	if len(rest) == 0 {
		o.stats.Refused++
		return
	}
	if s.Verdict == event.VerdictSlow {
		rest, ok = slowOf(rest, c.duration)
	}
	if !ok && o.repeated(rest, &c) {
		o.stats.Repeated++
		return
	}
	n, why := decide(rest, &c)
	h := &held{ev: ev, of: rest, guess: n, why: why, conn: c, ok: ok}
	h.maybe = !ok && meaning(rest[n].spec.Handler, s) == countsMaybe ||
		ok && rest[n].failing && answers(rest[n].spec.Handler) // the status of the answer is not visible
	if (why == "" || h.maybe) && o.hold(h, now) {
		return
	}
	if why == "" {
		o.stats.Guessed++
	}
	o.handFirst(h, false)
}

// handFirst reports the outcome for the first probe whose worker accepts it; the best guess comes
// first. counted: kubelet has counted it.
func (o *Observer) handFirst(h *held, counted bool) {
	j := judged{h.ok, h.why, counted}
	guess := h.of[h.guess]
	for _, one := range append([]*course{guess}, slices.Delete(slices.Clone(h.of), h.guess, h.guess+1)...) {
		if o.hand(one, o.outcome(h.ev, one, j), h.conn.started) {
			return
		}
		j.why = "no other probe runs here now"
	}
	o.stats.Refused++
	if !h.ok && (counted || meaning(guess.spec.Handler, h.ev.SockFail) != countsMaybe) {
		guess.accounted++ // kubelet may count it
	}
}

// repeated reports whether a connection is another attempt of a probe that has just failed: kubelet
// tries three times if it can't make a probe.
func (o *Observer) repeated(of []*course, c *connection) bool {
	for _, one := range of {
		if one.failing && !one.ended.IsZero() && c.started.Sub(one.started) < one.spec.Period/2 &&
			c.started.Sub(one.ended).Abs() < timeoutLess && len(of) == 1 {
			return true
		}
	}
	return false
}

// hand passes an outcome to the Manager. It reports whether a worker took it.
func (o *Observer) hand(one *course, out *probe.Outcome, started time.Time) bool {
	if !out.OK {
		o.between(one, started)
	}
	if !o.cfg.Manager.Observe(one.key, *out) {
		return false
	}
	o.stats.Taken++
	if out.Unsure {
		o.stats.Unsure++
		return true
	}
	if !out.OK && out.Container != one.container.ID { // the present container has not failed
		one.accounted++
		return true
	}
	one.note(out.OK, started, out.At)
	if !out.OK {
		one.succeeded = o.succeeded(one)
	}
	return true
}

// note records the latest outcome of a probe.
func (c *course) note(ok bool, started, ended time.Time) {
	if !started.IsZero() {
		c.started, c.ended = started, ended
	}
	if ok {
		c.recovered()
		return
	}
	c.failing = true
	c.accounted++
	c.run++
	c.kept = c.draft
}

// recovered ends a run of failures.
func (c *course) recovered() { c.failing, c.run, c.kept = false, 0, nil }

// succeed reports a success that no connection has shown.
func (o *Observer) succeed(one *course, at time.Time) {
	if o.cfg.Manager.Observe(one.key, probe.Outcome{At: at, OK: true, Detail: event.ProbeOutcome{Feed: event.ProbeObserved}}) {
		one.recovered()
	}
}

// between reports successes that were not observed. For example, if a probe with a period of ten
// seconds failed twice with almost thirty seconds in between, one between them has succeeded,
// provided that a connection to its address has.
func (o *Observer) between(one *course, started time.Time) {
	if !one.failing || started.Sub(one.started) < one.spec.Period*3/2 {
		return
	}
	if o.polling && answers(one.spec.Handler) {
		return // kubelet's counts show them, whatever the status was
	}
	n := o.succeeded(one)
	if n <= one.succeeded {
		return
	}
	one.succeeded = n
	o.succeed(one, one.started.Add(one.spec.Period))
}

// succeeded returns how many connections to the probe's address and port have succeeded.
func (o *Observer) succeeded(one *course) (n uint64) {
	p := o.index.places[one.at]
	if p == nil {
		return 0
	}
	counts, err := o.cfg.Sockets.Counts()
	if err != nil {
		return 0
	}
	for i := range counts {
		if counts[i].Name == p.name {
			n += counts[i].Succeeded
		}
	}
	return n
}

// bareID returns a container's ID without the runtime.
func bareID(id string) string {
	_, bare := probe.SplitID(id)
	return bare
}
