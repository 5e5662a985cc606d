package lease

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/collector/display"
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
	// OnEarlier is called from within Run, before the first renewal and perhaps twice, with the types
	// of the Lease that an earlier agent left. It is not called if there is none. May be nil.
	OnEarlier func(types []string)

	// Healthy returns why the agent does not work. Then the Lease is not renewed, so that the
	// controller marks its conditions. May be nil.
	Healthy func() error
	// Degraded returns what the agent lacks although it works, one line each, for the Lease. May
	// be nil. Healthy and Degraded are called at each renewal, from within Run.
	Degraded func() []string

	// Holder returns the holder name under which this agent runs Diagnoses, as in their checkpoints;
	// empty: it does not run any yet. It is called at each renewal, from within Run. May be nil.
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
	if c.Client == nil || c.Namespace == "" || c.Node == "" {
		return errors.New("lease: client, namespace and node are needed")
	}
	c.Interval, c.Duration = cmp.Or(c.Interval, DefaultInterval), cmp.Or(c.Duration, DefaultDuration)
	c.StartJitter, c.timeout = cmp.Or(c.StartJitter, defaultStartJitter), cmp.Or(c.timeout, defaultTimeout)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, defaultDrainTimeout)
	c.Types, c.Degraded = orNothing(c.Types), orNothing(c.Degraded)
	c.Healthy, c.Holder = orNothing(c.Healthy), orNothing(c.Holder)
	c.Version = display.Prefix(c.Version, maxVersion)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return nil
}

// orNothing returns f, or a function that returns the zero value.
func orNothing[T any](f func() T) func() T {
	if f == nil {
		return func() (nothing T) { return nothing }
	}
	return f
}
