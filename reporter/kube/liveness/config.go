package liveness

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Defaults of a [Config].
const (
	// DefaultSilent is the node lifecycle controller's default: a little more than three
	// renewals.
	DefaultSilent = 50 * time.Second
	// DefaultDraining is longer than a node is without an agent during an upgrade.
	DefaultDraining = 5 * time.Minute
	// DefaultStartUp is longer than it takes to pull an image.
	DefaultStartUp = 2 * time.Minute
	// DefaultWorkers is the node lifecycle controller's default.
	DefaultWorkers = 8
	// DefaultSlowRate: this many writes of whole Nodes a second in a zone are no load, and after
	// an outage that ends within minutes few Nodes have been changed.
	DefaultSlowRate = 1.0
	// DefaultPods selects the pods that the Helm chart creates.
	DefaultPods = "app.kubernetes.io/name=kernosis,app.kubernetes.io/component=agent"

	// defaultTimeout of a write.
	defaultTimeout = 10 * time.Second
)

// Config configures the controller. Namespace is required.
type Config struct {
	Namespace string // of the agents, and their Leases
	Pods      string // label selector of the agents' pods; empty: [DefaultPods]
	// Types are the conditions of agents that have never reported; empty: the types that most
	// reporting agents list.
	Types []string

	Silent   time.Duration // 0: [DefaultSilent]
	Draining time.Duration // 0: [DefaultDraining]
	StartUp  time.Duration // 0: [DefaultStartUp]
	Workers  int           // 0: [DefaultWorkers]
	SlowRate float64       // writes a second in a zone that is slowed; 0: [DefaultSlowRate]

	// Metrics registers the controller's metrics; if nil, they are not registered.
	Metrics prometheus.Registerer
	Log     *slog.Logger // nil: none
}

func (c *Config) setDefaults() error {
	if c.Namespace == "" {
		return errors.New("liveness: no namespace")
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		other time.Duration
	}{
		{"silent", &c.Silent, DefaultSilent}, {"draining", &c.Draining, DefaultDraining}, {"start-up", &c.StartUp, DefaultStartUp},
	} {
		if *d.value < 0 {
			return fmt.Errorf("liveness: %s: %s is negative", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.other
		}
	}
	if c.Workers < 0 || !(c.SlowRate >= 0) {
		return fmt.Errorf("liveness: %d workers, slow rate %v: want no negative number", c.Workers, c.SlowRate)
	}
	if c.Workers == 0 {
		c.Workers = DefaultWorkers
	}
	if c.SlowRate == 0 {
		c.SlowRate = DefaultSlowRate
	}
	if c.Pods == "" {
		c.Pods = DefaultPods
	}
	for _, t := range c.Types {
		if err := conditions.CheckType(t); err != nil {
			return fmt.Errorf("liveness: %w", err)
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

func (c *Config) periods() periods {
	return periods{silent: c.Silent, draining: c.Draining, startUp: c.StartUp}
}
