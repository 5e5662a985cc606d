package alerts

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// Bounds of what senders may take of this process.
const (
	maxConnections = 512
	// maxRequests at once hold a body each, of up to 4 MiB, and several times that while it
	// is decoded.
	maxRequests = 8
	// A sender has few groups of alerts, and Prometheus sends 64 alerts at a time: of 4096
	// it makes 64 requests.
	requestRate, requestBurst = 20, 100
	// An unknown token costs a request to the API server. The whole server asks it for
	// reviewRate a second at most, and one address for a tenth of that.
	reviewRate, reviewBurst               = 50, 100
	addressReviewRate, addressReviewBurst = 5, 20
	// maxSenders and maxAddresses are remembered; the ones heard of least lately go first.
	maxSenders, maxAddresses = 256, 4096

	// turnWithin is how long a request may wait for its turn.
	turnWithin = 2 * time.Second
	// takeWithin is how long a request may take once it is decoded: Prometheus waits 10 s
	// for the whole.
	takeWithin = 7 * time.Second

	headerWithin, readWithin, writeWithin, idleWithin = 5 * time.Second, 20 * time.Second, 60 * time.Second, 2 * time.Minute

	maxHeader = 64 << 10
	maxToken  = 16 << 10
)

// limiters are rates by name, for a bounded number of names.
type limiters struct {
	each  rate.Limit
	burst int

	mu     sync.Mutex
	byName *simplelru.LRU[string, *rate.Limiter]
}

func newLimiters(names int, each rate.Limit, burst int) (*limiters, error) {
	l, err := simplelru.NewLRU[string, *rate.Limiter](names, nil)
	return &limiters{each: each, burst: burst, byName: l}, err
}

func (l *limiters) of(name string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.byName.Get(name); ok {
		return r
	}
	r := rate.NewLimiter(l.each, l.burst)
	l.byName.Add(name, r)
	return r
}

// turn waits for a limiter, but no longer than turnWithin. It returns after which time it
// is worth to try again where that would not do; 0: it may go on.
func turn(ctx context.Context, l *rate.Limiter) time.Duration {
	r := l.Reserve()
	d := r.Delay()
	if d > turnWithin {
		r.Cancel()
		return d
	}
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return d
		}
	}
	return 0
}
