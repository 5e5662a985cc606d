package start

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// StateName is the name of the ConfigMap with the engine's state.
	StateName = "kernosis-trigger-state"

	// maxQueue bounds the Diagnoses waiting to be created, maxEvents the Events waiting to be
	// handled.
	maxQueue  = 1024
	maxEvents = 1024
	// makers and eventWorkers are how many requests of each kind run in parallel.
	makers, eventWorkers = 4, 4
	// A Diagnosis that can't be created is retried after firstRetry, then with doubled pauses up to
	// lastRetry, and dropped after giveUpAfter: an alert may be over by then.
	firstRetry, lastRetry = 200 * time.Millisecond, 30 * time.Second
	giveUpAfter           = time.Hour

	makeWithin = 10 * time.Second
	podWithin  = 2 * time.Second // an alert's sender waits
	// podTries is how often the pod of an Event is looked up, because an Event is not sent again.
	podTries = 4

	defaultSaveEvery = 5 * time.Second
	// longestNap bounds how long cron sleeps, because the clock may be set.
	longestNap = time.Minute
)

// Config configures the part. Namespace is required.
type Config struct {
	Namespace string // the system namespace
	// Installed is closed once the API server serves the kinds of diagnoses; nil: it already does.
	Installed <-chan struct{}
	// SaveEvery is the shortest interval between saves of the state; 0: 5 s.
	SaveEvery time.Duration
	// Now is the clock. Its location is the time zone of schedules that name none; nil: the
	// system's clock.
	Now func() time.Time

	Metrics prometheus.Registerer // nil: nowhere
	Log     *slog.Logger          // nil: no log
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
