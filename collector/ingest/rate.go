package ingest

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// Rates of one source, and bursts. They stop a runaway daemon, not a busy one: heartbeats come at
// most every few seconds.
const (
	reportsPerSecond = 2
	reportBurst      = 30
	eventsPerSecond  = 20
	eventBurst       = 300
	// A change of a condition causes a write to the node object, 10 KiB in etcd.
	changesPerSecond = 0.2
	changeBurst      = 50
	// maxReasons bounds the different reasons of a source in a run: they become labels of metrics.
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

// take takes a report with this many events and changes from the limits. If one of them is
// exceeded, it takes nothing and returns the name of the limit and how long to wait.
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

// rateText describes a limit.
func rateText(field string) string {
	switch field {
	case "reports":
		return fmt.Sprintf("at most %d/s, %d at once", reportsPerSecond, reportBurst)
	case "events":
		return fmt.Sprintf("at most %d/s, %d at once", eventsPerSecond, eventBurst)
	}
	return fmt.Sprintf("at most one change of status or reason in %v, %d at once", time.Duration(float64(time.Second)/changesPerSecond), changeBurst)
}
