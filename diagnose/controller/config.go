package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/diagnose/operation"
)

// Defaults of a [Config].
const (
	// DefaultSilent is that of package liveness.
	DefaultSilent = 50 * time.Second
	// DefaultPodWait is longer than it takes to schedule a pod where that is possible.
	DefaultPodWait = 5 * time.Minute
	// DefaultPendingSilent is longer than a node's reboot, or an upgrade of the agent.
	DefaultPendingSilent = 10 * time.Minute
	// DefaultRunningSilent gives a node that was cut off the time to come back, and its
	// agent to report what came of the run.
	DefaultRunningSilent = time.Hour
	// DefaultMaxEnded Diagnoses of some ten KiB are a small part of what etcd may have.
	DefaultMaxEnded = 2000
	// DefaultWorkers is that of package liveness.
	DefaultWorkers = 8
)

// Config configures the controller. Namespace is required.
type Config struct {
	Namespace string // of the system
	// Builtins are the operations that agents have.
	Builtins []operation.Builtin

	// Silent is how long after the last renewal of its Lease an agent is silent; 0:
	// [DefaultSilent].
	Silent time.Duration
	// PodWait is for how long a pod may be on no node; 0: [DefaultPodWait].
	PodWait time.Duration
	// PendingSilent and RunningSilent are for how long an agent may be silent before a
	// Diagnosis of its node ends that has not begun, or has; 0: [DefaultPendingSilent],
	// [DefaultRunningSilent]. One that reports, and does not begin, has RunningSilent too.
	PendingSilent, RunningSilent time.Duration
	// MaxEnded is how many ended Diagnoses the system namespace may have; 0:
	// [DefaultMaxEnded].
	MaxEnded int
	Workers  int // how many Diagnoses are looked at together; 0: [DefaultWorkers]

	// Metrics is where the controller's own are registered; nil: nowhere.
	Metrics prometheus.Registerer
	Log     *slog.Logger // nil: none
}

func (c *Config) setDefaults() error {
	if c.Namespace == "" {
		return errors.New("no namespace")
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		other time.Duration
	}{
		{"silent", &c.Silent, DefaultSilent}, {"pod wait", &c.PodWait, DefaultPodWait},
		{"pending silent", &c.PendingSilent, DefaultPendingSilent}, {"running silent", &c.RunningSilent, DefaultRunningSilent},
	} {
		if *d.value < 0 {
			return fmt.Errorf("%s: %s is negative", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.other
		}
	}
	if c.MaxEnded < 0 || c.Workers < 0 {
		return fmt.Errorf("%d ended Diagnoses, %d workers: want no negative number", c.MaxEnded, c.Workers)
	}
	if c.MaxEnded == 0 {
		c.MaxEnded = DefaultMaxEnded
	}
	if c.Workers == 0 {
		c.Workers = DefaultWorkers
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}
