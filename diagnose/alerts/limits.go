package alerts

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// Limits of what senders may use of this process.
const (
	// maxRequests is how many requests may run at once. Each holds a body of up to 4 MiB, and
	// several times that while it is decoded.
	maxRequests = 8
	// A sender has few groups of alerts. Prometheus sends 64 alerts per request, so 4096 alerts
	// make 64 requests.
	requestRate, requestBurst = 20, 100
	// reviewRate is how many tokens per second the API server is asked about at most.
	reviewRate = 50
	// allowedFor is how long a positive review of a token is cached.
	allowedFor = time.Minute
	// maxSenders is how many senders are remembered; the least recently seen are evicted.
	maxSenders = 256

	// turnWithin is how long a request may wait for its turn.
	turnWithin = 2 * time.Second
	// takeWithin is how long a decoded request may take: Prometheus waits 10 s for all of it.
	takeWithin = 7 * time.Second

	headerWithin, readWithin, writeWithin, idleWithin = 5 * time.Second, 20 * time.Second, 60 * time.Second, 2 * time.Minute

	maxHeader = 64 << 10
)

// turn waits for a limiter, but not longer than turnWithin. It returns 0 if the request may
// continue, or else after what time to retry.
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
