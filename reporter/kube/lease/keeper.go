package lease

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Keeper renews one node's Lease. Stats and Gone are safe for concurrent use.
type Keeper struct {
	config Config
	name   string

	mu      sync.Mutex
	stats   Stats
	running bool
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

// Run renews the Lease until ctx ends, then marks it as draining and returns ctx's error. It may
// be called only once. It retries a failed renewal, with growing waits up to the interval; there
// is never more than one request at a time.
func (k *Keeper) Run(ctx context.Context) error {
	k.mu.Lock()
	again := k.running
	k.running = true
	k.mu.Unlock()
	if again {
		return errors.New("lease: already running")
	}
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
			return ctx.Err()
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
		if asked, ok := apierrors.SuggestsClientDelay(err); ok {
			// Add up to a quarter at random: all refused clients got the same answer.
			d := time.Duration(asked) * time.Second
			delay = max(delay, d+rand.N(d/4+1))
		}
		timer.Reset(delay)
	}
}

// patience returns the backoff between tries. Each wait is randomly up to twice as long, so that
// a fleet that lost its API server does not come back all at once.
func (k *Keeper) patience() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 16, Cap: k.config.Interval}
}

// note counts a renewal by its outcome, and logs changes.
func (k *Keeper) note(err error) {
	k.count(func(s *Stats) {
		if err != nil {
			s.Renewals[outcomeOf(err)]++
			s.LastError = err.Error()
			return
		}
		s.LastError = ""
	})
	if failing := err != nil; failing != k.failing {
		k.failing = failing
		if failing {
			k.config.Log.Warn("lease not renewed", "lease", k.name, "error", err)
		} else {
			k.config.Log.Info("lease is renewed again", "lease", k.name)
		}
	}
}

// drain marks the Lease as draining, unless another agent has it. ctx must not be the one that
// has ended.
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
