package conditions

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/detector/problem"
)

// Stats are the counters since the Patcher was created.
type Stats struct {
	Writes     map[Outcome]uint64 // patches sent, including heartbeats
	Heartbeats uint64             // accepted patches that had only the heartbeat
	Bytes      uint64             // of the bodies of all patches sent
	Retries    uint64             // patches sent because the previous one failed
	Flips      uint64             // conditions of ours that others overwrote or removed
	Contested  uint64             // times that a type was yielded
	Removed    uint64             // types deleted because they are no longer set
	Refused    uint64             // conditions given to Set that the agent must not set
	Trimmed    uint64             // reasons and messages that had to be changed
	Watches    uint64             // watches that the API has opened

	Yielded    []string  // types that are yielded now
	LastAcked  time.Time // of the last accepted write; zero: none
	LastError  string    // of the last write; empty if it was accepted
	Pending    bool      // the API does not have what was set last
	NodeExists bool      // as far as known
}

// Patcher writes one node's conditions. Set and Stats are safe for concurrent use.
type Patcher struct {
	config  Config
	changed chan struct{} // of capacity 1: Set was called
	sights  chan sight

	mu      sync.Mutex
	list    []problem.Condition // the latest list; never changed in place
	set     uint64              // number of calls of Set
	retired []string            // from earlier runs, not yet in the ledger
	types   []string            // from the ledger
	pending bool
	stats   Stats

	// The following fields are used only by Run's goroutine.
	ledger   *ledger
	taken    uint64    // value of set when list was last applied
	gate     time.Time // no write before, unless a condition is True
	watching bool
	readBack time.Time // the first write waits for the watch until then
	last     time.Time // start of the last write
	beat     time.Time // when the next heartbeat is due
	failing  bool
	single   bool // the API has refused a write of several types: write one at a time
	// answer is the outcome of the last write. It is also Refused if a policy refused its types with
	// 403. After Forbidden the next write has no type, to distinguish such a policy from missing
	// permission.
	answer  Outcome
	retryAt time.Time
	asked   time.Time // the API asked for no write before
	backoff wait.Backoff
	stored  []string      // types in the state file
	storing bounded.Calls // writes of it
	// storeLate: the last write of the state file is still hanging, and that was logged.
	storeLate bool
	yieldFor  time.Duration // shorter in tests
}

// New returns a Patcher that does nothing until Run is called.
func New(c Config) (*Patcher, error) {
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	earlier, err := readState(c.StateFile, c.Node)
	if err != nil {
		c.Log.Warn("can't read which types an earlier run wrote", "error", err)
	}
	return &Patcher{
		config: c, changed: make(chan struct{}, 1), sights: make(chan sight),
		stats:  Stats{Writes: make(map[Outcome]uint64)},
		ledger: &ledger{entries: make(map[string]*entry)}, retired: earlier, stored: earlier, yieldFor: yieldFor,
	}, nil
}

// Set sets all conditions of this agent: the list is complete and replaces the previous one. It does
// not block. The error names conditions that can't be written, which Set leaves out, and texts that
// it had to change; the other conditions are written.
func (p *Patcher) Set(list []problem.Condition) error {
	c := check(list)
	p.mu.Lock()
	p.list, p.pending = c.list, true
	p.set++
	p.stats.Refused += c.refused
	p.stats.Trimmed += c.trimmed
	p.mu.Unlock()
	p.wake()
	return c.err
}

func (p *Patcher) wake() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Retire adds types that an earlier agent of this node has, or may have, in the API, such as
// those listed in its Lease. Types that are not in the detector's next list are removed. Types
// that can't be ours are ignored. It does not block.
func (p *Patcher) Retire(types []string) {
	types = slices.DeleteFunc(slices.Clone(types), func(t string) bool { return CheckType(t) != nil })
	p.mu.Lock()
	p.retired = append(p.retired, types...)
	p.mu.Unlock()
	p.wake()
}

// Types returns the types that we have, or may have, in the API, sorted: those that are set and
// those that are still to be removed, without yielded types. An agent that ends leaves these
// types in the API.
func (p *Patcher) Types() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := slices.Concat(p.types, p.retired)
	for _, c := range p.list {
		out = append(out, c.Type)
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(t string) bool { return slices.Contains(p.stats.Yielded, t) })
}

// Stats returns a copy of the counters.
func (p *Patcher) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Writes, s.Yielded, s.Pending = maps.Clone(s.Writes), slices.Clone(s.Yielded), p.pending
	return s
}

func (p *Patcher) count(f func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}

// Run writes until ctx ends. It may be called only once.
func (p *Patcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()

	now := time.Now()
	p.ledger.start, p.gate = now, now
	if p.config.StartJitter > 0 {
		p.gate = now.Add(rand.N(p.config.StartJitter))
	}
	if p.config.Heartbeat > 0 {
		p.beat = now.Add(rand.N(p.config.Heartbeat)) // so that agents that start together do not send heartbeats together
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wake := p.turn(ctx, &watching)
		if ctx.Err() != nil {
			return nil
		}
		timer.Stop()
		if !wake.IsZero() {
			timer.Reset(time.Until(wake))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.changed:
		case s := <-p.sights:
			p.see(s, time.Now())
		case <-timer.C:
		}
	}
}

// turn does the work that is due now. It returns when to call it again if nothing else happens;
// zero: never.
func (p *Patcher) turn(ctx context.Context, watching *sync.WaitGroup) (wake time.Time) {
	now := time.Now()
	p.take()
	if !p.watching {
		if now.Before(p.gate) && !p.ledger.urgent() {
			return p.gate
		}
		p.watching, p.readBack = true, now.Add(p.config.timeout)
		watching.Go(func() { p.look(ctx) })
	}
	if !p.ledger.seen && now.Before(p.readBack) {
		return p.readBack
	}
	p.ledger.announce(now)
	p.ledger.forget()
	write, remove, again := p.ledger.due(now)
	beats := p.beats(now)
	p.settle(len(write)+len(remove) == 0 && !p.ledger.refuses(now), now)
	if p.config.Healthy() != nil {
		write, remove = slices.DeleteFunc(write, p.ledger.spokenFor), slices.DeleteFunc(remove, p.ledger.spokenFor)
		again = sooner(again, now.Add(healthyAgain))
		if beats {
			p.nextBeat(now)
			beats = false
		}
	}
	switch {
	case len(write)+len(remove) == 0 && !beats:
		if p.failing {
			p.config.Log.Info("the node has all conditions", "node", p.config.Node) // an unanswered write, or another client
		}
		p.failing, p.single = false, false
		p.store()
		return sooner(again, p.beat)
	case p.failing && now.Before(p.retryAt):
		return p.retryAt
	case now.Before(p.last.Add(p.config.Coalesce)):
		return p.last.Add(p.config.Coalesce)
	}
	switch {
	case p.answer == Forbidden:
		write, remove, beats = nil, nil, false
	case p.single && len(write) > 0:
		write, remove, beats = write[:1], nil, false // a heartbeat has all types: first find the refused one
	case p.single && len(remove) > 0:
		remove, beats = remove[:1], false
	}
	p.write(ctx, write, remove, beats, now)
	return time.Now()
}

func (p *Patcher) take() {
	p.mu.Lock()
	list, set, retired := p.list, p.set, p.retired
	p.retired = nil
	p.types = append(p.types, retired...) // they are in no other list meanwhile
	p.mu.Unlock()
	for _, t := range retired {
		p.ledger.entry(t)
	}
	if set != p.taken {
		p.taken = set
		p.ledger.set(list)
	}
}

// settle records whether the API has all that was set.
func (p *Patcher) settle(done bool, now time.Time) {
	yielded, types := p.ledger.yields(now), p.ledger.types()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = !done || p.set != p.taken
	p.types = types
	p.stats.Yielded = yielded
}

func (p *Patcher) beats(now time.Time) bool {
	if p.beat.IsZero() || now.Before(p.beat) {
		return false
	}
	if len(p.alive(now)) == 0 {
		p.nextBeat(now) // there is no condition to renew
		return false
	}
	return true
}

// alive returns the types that a heartbeat renews, sorted.
func (p *Patcher) alive(now time.Time) []string {
	var out []string
	for name, e := range p.ledger.entries {
		if e.wanted && !e.yielded(now) && !p.ledger.held(e, now) && !now.Before(e.blocked) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (p *Patcher) nextBeat(now time.Time) {
	h := p.config.Heartbeat
	p.beat = now.Add(h - h/10 + rand.N(h/5+1))
}
