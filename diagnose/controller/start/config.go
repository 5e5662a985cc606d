package start

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// StateName is that of the ConfigMap with what the engine remembers.
	StateName = "kernosis-trigger-state"

	// maxQueue Diagnoses wait to be made, and maxEvents Events to be looked at.
	maxQueue  = 1024
	maxEvents = 1024
	// makers and eventWorkers are how many requests of each kind are under way at once.
	makers, eventWorkers = 4, 4
	// A Diagnosis that can't be made is tried again after firstRetry, then twice as long,
	// up to lastRetry, and given up after giveUpAfter: an alert may be over by then.
	firstRetry, lastRetry = 200 * time.Millisecond, 30 * time.Second
	giveUpAfter           = time.Hour

	makeWithin = 10 * time.Second
	podWithin  = 2 * time.Second // an alert's sender waits
	// podTries of an Event, of which there is no second sending.
	podTries = 4

	defaultSaveEvery = 5 * time.Second
	// longestNap is how long cron sleeps at most: the clock may be set.
	longestNap = time.Minute
)

// Config configures the part. Namespace is required.
type Config struct {
	Namespace string // the system namespace
	// Installed is closed once the API server serves the kinds of diagnoses; nil: it does.
	Installed <-chan struct{}
	// SaveEvery is how often the state is saved at most; 0: every 5 s.
	SaveEvery time.Duration
	// Now is the clock, whose location is the time zone of schedules that name none; nil:
	// the system's.
	Now func() time.Time

	Metrics prometheus.Registerer // nil: nowhere
	Log     *slog.Logger          // nil: none
}

func (c *Config) setDefaults() error {
	if c.Namespace == "" {
		return errors.New("no namespace")
	}
	c.SaveEvery = cmp.Or(c.SaveEvery, defaultSaveEvery)
	if c.SaveEvery < 0 {
		return errors.New("save every: is negative")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}
