package lease

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Outcomes of renewals besides those of package conditions. NodeMissing means that there is no
// Node to create the Lease for, Conflict that several conflicts came in a row.
const (
	Renewed   conditions.Outcome = "renewed"
	Created   conditions.Outcome = "created"
	Unhealthy conditions.Outcome = "unhealthy" // nothing was sent: the agent does not work
)

// Outcomes returns all outcomes, for a table of counters.
func Outcomes() []conditions.Outcome {
	return append([]conditions.Outcome{Renewed, Created, Unhealthy}, conditions.Outcomes()[1:]...)
}

// Stats are the counters since the Keeper was created.
type Stats struct {
	Renewals map[conditions.Outcome]uint64 // counted each time a renewal was due or retried
	Requests uint64                        // sent for them, including reads
	Reads    uint64                        // of the Lease: at start, and after each conflict
	Refused  uint64                        // types left out at the last renewal, because the agent must not set them

	Superseded  bool      // another agent of this node has taken the Lease
	Drained     bool      // the Lease is marked as draining
	LastRenewed time.Time // zero: never
	LastError   string    // of the last renewal; empty: it succeeded
}

// Keeper renews one node's Lease. Stats and Gone are safe for concurrent use.
type Keeper struct {
	config Config
	name   string

	mu    sync.Mutex
	stats Stats
	// Used by Gone.
	holders Holders
	renewed time.Time            // when the last accepted renewal was sent; zero: none was accepted
	asked   map[string]time.Time // time of the first call, by holder

	// The following fields are used only by Run's goroutine.
	last     *coordinationv1.Lease // as last seen; nil: not seen, or it does not exist
	read     bool                  // it is known whether the Lease exists
	acquired metav1.MicroTime      // acquireTime in our writes
	written  bool                  // one of our writes was accepted
	failing  bool
	reported int // number of refused types at the last log message, to log it only once
}

// New returns a Keeper that does nothing until Run is called.
func New(c Config) (*Keeper, error) {
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	return &Keeper{config: c, name: Name(c.Node), stats: Stats{Renewals: make(map[conditions.Outcome]uint64)}, asked: make(map[string]time.Time)}, nil
}

// Stats returns a copy of the counters.
func (k *Keeper) Stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.stats
	s.Renewals = maps.Clone(s.Renewals)
	return s
}

func (k *Keeper) count(f func(*Stats)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(&k.stats)
}

// Run renews the Lease until ctx ends, then marks it as draining. It may be called only once. It
// retries a failed renewal, with growing waits up to the interval; there is never more than one
// request at a time.
func (k *Keeper) Run(ctx context.Context) error {
	k.acquired = metav1.NewMicroTime(time.Now())
	delay := time.Duration(0)
	if k.config.StartJitter > 0 {
		delay = rand.N(k.config.StartJitter)
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	patience := k.patience()
	for {
		select {
		case <-ctx.Done():
			k.drain(context.WithoutCancel(ctx))
			return nil
		case <-timer.C:
		}
		began := time.Now()
		err := k.renew(ctx, time.Time{})
		if ctx.Err() != nil {
			continue // select handles it
		}
		k.note(err)
		if err == nil {
			patience = k.patience()
			timer.Reset(time.Until(began.Add(wait.Jitter(k.config.Interval, jitter))))
			continue
		}
		delay := min(patience.Step(), k.config.Interval)
		if asked := conditions.AskedDelay(err); asked > 0 {
			// Add up to a quarter at random: all refused clients got the same answer.
			delay = max(delay, asked+rand.N(asked/4+1))
		}
		timer.Reset(delay)
	}
}

func (k *Keeper) patience() wait.Backoff {
	return conditions.Backoff(200*time.Millisecond, k.config.Interval)
}

// note counts a renewal by its outcome, and logs changes.
func (k *Keeper) note(err error) {
	k.count(func(s *Stats) {
		s.LastError = ""
		if err != nil {
			s.Renewals[outcomeOf(err)]++
			s.LastError = err.Error()
		}
	})
	switch {
	case err != nil && !k.failing:
		k.config.Log.Warn("lease not renewed", "lease", k.name, "error", err)
	case err == nil && k.failing:
		k.config.Log.Info("lease is renewed again", "lease", k.name)
	}
	k.failing = err != nil
}

// drain marks the Lease as draining, unless another agent has it. ctx must not be the context
// that ended Run.
func (k *Keeper) drain(ctx context.Context) {
	if !k.written {
		return // there is no Lease of ours to mark
	}
	ctx, cancel := context.WithTimeout(ctx, k.config.DrainTimeout)
	defer cancel()
	backoff := k.patience()
	for {
		err := k.renew(ctx, time.Now())
		k.note(err)
		if err == nil {
			return
		}
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
			k.config.Log.Warn("can't record in the lease that the agent is stopping", "lease", k.name, "error", err)
			return
		}
	}
}
