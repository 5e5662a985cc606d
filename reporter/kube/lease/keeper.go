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

// Keeper keeps one node's Lease. Stats and Gone may be called by several goroutines at any
// time.
type Keeper struct {
	config Config
	name   string

	mu      sync.Mutex
	stats   Stats
	running bool
	// Of Gone.
	holders Holders
	renewed time.Time            // when the last renewal that was taken was sent; zero: none was
	asked   map[string]time.Time // since when, by holder

	// What follows is for Run's goroutine.
	last     *coordinationv1.Lease // as it was seen last; nil: not seen, or it is not there
	read     bool                  // the API has reported whether there is one
	acquired metav1.MicroTime      // what our writes have as acquireTime
	written  bool                  // one of them was taken
	failing  bool
	reported int // types that were refused, so that the log has it once
}

// New returns a Keeper that does nothing until it runs.
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

// Run renews the Lease until ctx ends, marks it as draining, and returns ctx's error.
// It runs once. A renewal that fails is tried again, with growing waits that do not
// exceed the interval; there is never more than one request.
func (k *Keeper) Run(ctx context.Context) error {
	k.mu.Lock()
	again := k.running
	k.running = true
	k.mu.Unlock()
	if again {
		return errors.New("lease: it runs already")
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
			continue // select sees it
		}
		k.note(err)
		if err == nil {
			patience = k.patience()
			timer.Reset(time.Until(began.Add(wait.Jitter(k.config.Interval, jitter))))
			continue
		}
		delay := min(patience.Step(), k.config.Interval)
		if asked, ok := apierrors.SuggestsClientDelay(err); ok {
			// A quarter more at most, by chance: all that were refused got the same answer.
			d := time.Duration(asked) * time.Second
			delay = max(delay, d+rand.N(d/4+1))
		}
		timer.Reset(delay)
	}
}

// patience returns how tries follow each other. Each wait is up to twice as long by
// chance, so that a fleet that lost its API server does not come back as one.
func (k *Keeper) patience() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 16, Cap: k.config.Interval}
}

// note counts how a renewal ended, and logs changes.
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

// drain says in the Lease that the agent ends, unless another agent has it. ctx is
// not the one that has ended.
func (k *Keeper) drain(ctx context.Context) {
	if !k.written {
		return // there is nothing that others would miss
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
			k.config.Log.Warn("lease does not say that the agent ends", "lease", k.name, "error", err)
			return
		}
	}
}
