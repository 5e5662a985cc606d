package ingest

import (
	"time"

	"golang.org/x/time/rate"
)

// Rates of one source, and how much may come at once. They are those of a daemon
// that has lost its mind, not of one that has much to report: heartbeats come every
// some seconds at most.
const (
	reportsPerSecond = 2
	reportBurst      = 30
	eventsPerSecond  = 20
	eventBurst       = 300
	// A change of a condition is a write to the node's object, of 10 KiB in etcd.
	changesPerSecond = 0.2
	changeBurst      = 50
	// maxReasons bounds the different reasons of a source while the agent runs:
	// they are labels of metrics.
	maxReasons = 50
)

type limits struct{ reports, events, changes *rate.Limiter }

func newLimits() limits {
	return limits{
		reports: rate.NewLimiter(reportsPerSecond, reportBurst),
		events:  rate.NewLimiter(eventsPerSecond, eventBurst),
		changes: rate.NewLimiter(changesPerSecond, changeBurst),
	}
}

// take takes a report of so many events and changes off the rates, or nothing and
// says of which there were too many and when it would be taken.
func (l *limits) take(now time.Time, events, changes int) (tooMany string, wait time.Duration) {
	taken := make([]*rate.Reservation, 0, 3)
	for _, t := range []struct {
		field string
		l     *rate.Limiter
		n     int
	}{{"reports", l.reports, 1}, {"events", l.events, events}, {"conditions", l.changes, changes}} {
		r := t.l.ReserveN(now, t.n)
		taken = append(taken, r)
		if d := r.DelayFrom(now); d > wait {
			tooMany, wait = t.field, d
		}
	}
	if tooMany != "" {
		for _, r := range taken {
			r.CancelAt(now)
		}
	}
	return tooMany, wait
}
