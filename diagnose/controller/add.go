package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
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
