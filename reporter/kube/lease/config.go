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
	// DefaultInterval is a write of some hundred bytes four times a minute.
	DefaultInterval = 15 * time.Second
	// DefaultDuration is less than the controller waits, and more than two renewals.
	DefaultDuration = 40 * time.Second

	// defaultTimeout leaves time for another try before the controller speaks.
	defaultTimeout = 10 * time.Second
	// defaultDrainTimeout is far below the 30 s that a pod has to end.
	defaultDrainTimeout = 5 * time.Second
	// defaultStartJitter spreads a fleet that starts at once.
	defaultStartJitter = 10 * time.Second
	// jitter of the interval: agents must not renew in step.
	jitter = 0.04
)

// Config is what a [Keeper] is made of. Client, Namespace and Node are required.
type Config struct {
	// Client should have no other user: what waits for a client's own limit of
	// requests would delay the sign of life.
	Client    kubernetes.Interface
	Namespace string
	Node      string
	Version   string // of the agent

	// Types returns the condition types that the agent has, or may have, on the Node.
	// It is called at each renewal, from within Run. Nil: none.
	Types func() []string
	// OnEarlier is given the types of the Lease that an earlier agent left, before
	// the first renewal, from within Run, perhaps twice. Not called where there is
	// none. May be nil.
	OnEarlier func(types []string)

	// Healthy returns why the agent does not do its work: then the Lease is not renewed, so
	// that others speak for it. Nil: it always does.
	Healthy func() error
	// Degraded returns what the agent lacks while it works, a line each: the Lease says it.
	// Nil: nothing, ever. Both are called at each renewal, from within Run.
	Degraded func() []string

	// Holder returns who runs Diagnoses in this agent, as their checkpoints have it; empty:
	// nobody does, yet. It is called at each renewal, from within Run. Nil: nobody
	// ever does.
	Holder func() string

	Interval time.Duration // between renewals; 0: [DefaultInterval]
	Duration time.Duration // that the Lease says, whole seconds; 0: [DefaultDuration]
	// DrainTimeout bounds what Run does after its ctx has ended; 0: five seconds.
	DrainTimeout time.Duration
	// StartJitter is the longest time by which the first request is delayed; 0: ten
	// seconds, negative: none.
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
