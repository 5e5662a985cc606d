package lease

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/kubernetes"
)

// Defaults of a [Config].
const (
	// DefaultInterval results in a write of some hundred bytes four times a minute.
	DefaultInterval = 15 * time.Second
	// DefaultDuration is less than the controller waits, and more than two renewals.
	DefaultDuration = 40 * time.Second

	// defaultTimeout leaves time for another try before the controller acts.
	defaultTimeout = 10 * time.Second
	// defaultDrainTimeout is far below the 30 s that a pod has to terminate.
	defaultDrainTimeout = 5 * time.Second
	// defaultStartJitter spreads the requests of a fleet that starts at once.
	defaultStartJitter = 10 * time.Second
	// jitter of the interval, so that agents do not renew in step.
	jitter = 0.04
)

// Config configures a [Keeper]. Client, Namespace and Node are required.
type Config struct {
	// Client should have no other user: other requests that wait for its rate limit would delay
	// the renewal.
	Client    kubernetes.Interface
	Namespace string
	Node      string
	Version   string // of the agent

	// Types returns the condition types that the agent has, or may have, on the Node. It is
	// called at each renewal, from within Run. May be nil.
	Types func() []string
	// OnEarlier is called from within Run, before the first renewal and perhaps twice, with the
	// types of the Lease that an earlier agent left. It is not called if there is none. May be
	// nil.
	OnEarlier func(types []string)

	// Healthy returns why the agent does not work. Then the Lease is not renewed, so that the
	// controller marks its conditions. May be nil.
	Healthy func() error
	// Degraded returns what the agent lacks although it works, one line each, for the Lease. May
	// be nil. Healthy and Degraded are called at each renewal, from within Run.
	Degraded func() []string

	// Holder returns the holder name under which this agent runs Diagnoses, as in their
	// checkpoints; empty: it does not run any yet. It is called at each renewal, from within Run.
	// May be nil.
	Holder func() string

	Interval time.Duration // between renewals; 0: [DefaultInterval]
	Duration time.Duration // in the Lease, whole seconds; 0: [DefaultDuration]
	// DrainTimeout bounds what Run does after its ctx has ended; 0: five seconds.
	DrainTimeout time.Duration
	// StartJitter is the maximum delay of the first request; 0: ten seconds, negative: none.
	StartJitter time.Duration

	Log *slog.Logger // nil: none

	timeout time.Duration // of one request; 0: ten seconds
}

func (c *Config) setDefaults() error {
	switch {
	case c.Client == nil:
		return errors.New("lease: no client")
	case c.Namespace == "":
		return errors.New("lease: no namespace")
	case c.Node == "":
		return errors.New("lease: no node name")
	case c.Duration%time.Second != 0:
		return fmt.Errorf("lease: duration %s is not in whole seconds", c.Duration)
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		other time.Duration
	}{
		{"interval", &c.Interval, DefaultInterval}, {"duration", &c.Duration, DefaultDuration},
		{"timeout", &c.timeout, defaultTimeout}, {"drain timeout", &c.DrainTimeout, defaultDrainTimeout},
	} {
		if *d.value < 0 {
			return fmt.Errorf("lease: %s is negative", d.name)
		}
		if *d.value == 0 {
			*d.value = d.other
		}
	}
	if c.StartJitter == 0 {
		c.StartJitter = defaultStartJitter
	}
	if c.Types == nil {
		c.Types = func() []string { return nil }
	}
	if c.Healthy == nil {
		c.Healthy = func() error { return nil }
	}
	if c.Degraded == nil {
		c.Degraded = func() []string { return nil }
	}
	if c.Holder == nil {
		c.Holder = func() string { return "" }
	}
	if len(c.Version) > maxVersion {
		c.Version = c.Version[:maxVersion]
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}
