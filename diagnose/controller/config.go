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
	// DefaultSilent is the same as in package liveness.
	DefaultSilent = 50 * time.Second
	// DefaultPodWait is longer than scheduling a pod takes if it is possible at all.
	DefaultPodWait = 5 * time.Minute
	// DefaultPendingSilent is longer than a reboot of the node or an upgrade of the agent.
	DefaultPendingSilent = 10 * time.Minute
	// DefaultRunningSilent leaves a partitioned node time to come back, and its agent time to
	// report the result of the run.
	DefaultRunningSilent = time.Hour
	// DefaultMaxEnded Diagnoses of some ten KiB each use a small part of etcd's quota.
	DefaultMaxEnded = 2000
	// DefaultWorkers is the same as in package liveness.
	DefaultWorkers = 8
)

// Config configures the controller. Namespace is required.
type Config struct {
	Namespace string // of the system
	// Builtins are the built-in operations of the agents.
	Builtins []operation.Builtin

	// Silent is how long after the last renewal of its Lease an agent counts as silent; 0:
	// [DefaultSilent].
	Silent time.Duration
	// PodWait is how long a pod may stay unscheduled; 0: [DefaultPodWait].
	PodWait time.Duration
	// PendingSilent and RunningSilent are how long an agent may be silent before a pending or
	// running Diagnosis of its node is ended; 0: [DefaultPendingSilent], [DefaultRunningSilent].
	// RunningSilent also bounds how long an agent that reports may leave a Diagnosis pending.
	PendingSilent, RunningSilent time.Duration
	// MaxEnded is how many ended Diagnoses are kept in the system namespace; 0: [DefaultMaxEnded].
	MaxEnded int
	Workers  int // how many Diagnoses are reconciled in parallel; 0: [DefaultWorkers]

	// Metrics is where the controller's metrics are registered; nil: nowhere.
	Metrics prometheus.Registerer
	Log     *slog.Logger // nil: no log
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
