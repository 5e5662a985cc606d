package events

import (
	"math/rand/v2"
	"time"
)

const (
	// firstRetry is short: most failures are broken connections.
	firstRetry = 200 * time.Millisecond
	// lastRetry bounds how late the sink notices that the API server is back. A fleet of 500
	// agents then sends 17 to 33 requests a second.
	lastRetry = 30 * time.Second
	// lastFailed bounds the wait of an Event that the server has failed. It is half of lastRetry,
	// so that the wait is over before the next request of an outage: the first one that succeeds
	// is followed by the others in order.
	lastFailed = lastRetry / 2
	// lastRefused is the same for a single refused Event.
	lastRefused = 5 * time.Minute
)

// backoff returns how long to wait after n failures in a row. It doubles up to most, with a
// random second half so that agents that failed together don't retry together.
func backoff(n int, most time.Duration) time.Duration {
	d := most
	if n < 20 {
		d = min(firstRetry<<max(n-1, 0), most)
	}
	return d/2 + rand.N(d/2+1)
}

// outage is a time in which no request gets through.
type outage struct {
	fails  int // in a row
	logged bool
	since  time.Time // the first one
	until  time.Time // no request before
	ended  time.Time // when the latest outage ended
}

func (o *outage) failed(now time.Time, wish time.Duration) {
	o.fails++
	if o.fails == 1 {
		o.since = now
	}
	o.until = now.Add(max(backoff(o.fails, lastRetry), min(wish, lastRetry)))
}

func (o *outage) over(now time.Time) (lasted time.Duration, was bool) {
	if o.fails == 0 {
		return 0, false
	}
	lasted = now.Sub(o.since)
	*o = outage{ended: now}
	return lasted, true
}
