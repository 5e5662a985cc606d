package alerts

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// Bounds of what senders may take of this process.
const (
	// maxRequests at once hold a body each, of up to 4 MiB, and several times that while it
	// is decoded.
	maxRequests = 8
	// A sender has few groups of alerts, and Prometheus sends 64 alerts at a time: of 4096
	// it makes 64 requests.
	requestRate, requestBurst = 20, 100
	// reviewRate is how often a second the API server is asked about a token.
	reviewRate = 50
	// For so long a verdict holds that allows.
	allowedFor = time.Minute
	// maxSenders are remembered; the ones heard of least lately go first.
	maxSenders = 256

	// turnWithin is how long a request may wait for its turn.
	turnWithin = 2 * time.Second
	// takeWithin is how long a request may take once it is decoded: Prometheus waits 10 s
	// for the whole.
	takeWithin = 7 * time.Second

	headerWithin, readWithin, writeWithin, idleWithin = 5 * time.Second, 20 * time.Second, 60 * time.Second, 2 * time.Minute

	maxHeader = 64 << 10
)

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
