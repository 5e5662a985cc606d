package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/reporter/kube/leader"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// Add adds the controller to a running manager whose API server serves the kinds of [Served]; see
// [leader.WhenServed]. Its metrics stay registered until remove is called.
func Add(m manager.Manager, c Config) (remove func(), err error) {
	if err := c.setDefaults(); err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	own := prometheus.NewRegistry()
	deleted := newDeleted()
	own.MustRegister(deleted, &phases{m.GetCache()})
	if err := add(m, &c, deleted); err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	if remove, err = leader.Register(c.Metrics, own); err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	return remove, nil
}

func add(m manager.Manager, c *Config, deleted *prometheus.CounterVec) error {
	if err := index(m.GetFieldIndexer()); err != nil {
		return err
	}
	names := &names{client: m.GetClient(), api: m.GetAPIReader(), builtins: c.Builtins}
	d := &diagnoses{
		config: c, client: m.GetClient(), api: m.GetAPIReader(), agents: newAgents(c.Silent),
		deleted: deleted, names: names, report: &reporter{recorder: m.GetEventRecorder(lease.Controller)},
	}
	h := &history{config: c, client: m.GetClient(), deleted: deleted}
	sets, triggers := &sets{client: m.GetClient(), names: names}, &triggers{client: m.GetClient(), names: names}
	kinds := m.GetCache()
	return errors.Join(
		leader.Reconcile(m, "operationsets", 1, sets,
			source.Kind(kinds, &v1alpha1.OperationSet{}, itself[*v1alpha1.OperationSet]()),
			source.Kind(kinds, &v1alpha1.Operation{}, sets.operationHandler())),
		leader.Reconcile(m, "triggers", 1, triggers,
			source.Kind(kinds, &v1alpha1.Trigger{}, itself[*v1alpha1.Trigger]()),
			source.Kind(kinds, &v1alpha1.OperationSet{}, triggers.setHandler())),
		leader.Reconcile(m, "diagnoses", c.Workers, d, d.sources(kinds)...),
		leader.Reconcile(m, "diagnosishistory", 1, h, h.sources(kinds)...),
	)
}

// Names of the indexes of cached Diagnoses.
const (
	indexNode   = "controller/node"   // Diagnoses that have not ended, by spec.nodeName
	indexParent = "controller/parent" // by the parent's UID
	indexEnded  = "controller/ended"  // ended Diagnoses without a parent, by the Trigger's name
)

// index adds the indexes.
func index(to client.FieldIndexer) error {
	of := func(name string, value func(*v1alpha1.Diagnosis) []string) error {
		return to.IndexField(context.Background(), &v1alpha1.Diagnosis{}, name, func(o client.Object) []string {
			d, ok := o.(*v1alpha1.Diagnosis)
			if !ok {
				return nil
			}
			return value(d)
		})
	}
	return errors.Join(
		of(indexNode, func(d *v1alpha1.Diagnosis) []string {
			if d.Status.Completed() || d.Spec.NodeName == "" {
				return nil
			}
			return []string{d.Spec.NodeName}
		}),
		of(indexParent, func(d *v1alpha1.Diagnosis) []string {
			if parent := d.Parent(); parent != nil {
				return []string{string(parent.UID)}
			}
			return nil
		}),
		of(indexEnded, func(d *v1alpha1.Diagnosis) []string {
			if !d.Status.Completed() || d.Parent() != nil {
				return nil
			}
			return []string{triggerOf(d), anyTrigger}
		}),
	)
}

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
