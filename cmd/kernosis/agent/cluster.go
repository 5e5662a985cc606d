package agent

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/worker/kube"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/reporter/kube/events"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// Kinds of objects that the agent writes to the API server, as label values of its metrics.
const (
	objectCondition = "condition"
	objectEvent     = "event"
	objectLease     = "lease"
	objectDiagnosis = "diagnosis"
)

// clusterReporter reports the agent's results to the API server. A nil part of it is switched off;
// the zero value reports nothing.
type clusterReporter struct {
	log        *slog.Logger
	latency    *prometheus.HistogramVec
	conditions *conditions.Patcher
	events     *events.Sink
	lease      *lease.Keeper
	diagnoses  *kube.Store

	changed bool // whether conditions changed since the last flush; guarded by the agent's lock

	mu      sync.Mutex
	changes map[string]*unwritten // of conditions, by type
}

// openCluster opens the parts of the cluster reporter if a cluster is configured. It does not connect.
func (p *parts) openCluster() error {
	if p.cfg.cluster != nil {
		if err := p.openReporter(&p.agent.cluster); err != nil {
			return output.Failed(err)
		}
	}
	p.agent.reportConditions()
	return nil
}

func (p *parts) openReporter(r *clusterReporter) (err error) {
	cfg, to := &p.cfg, p.cfg.cluster
	r.log, r.diagnoses, r.latency, r.changes = p.log, p.diagnoses, newLatency(), make(map[string]*unwritten)
	if cfg.Kube.WriteConditions {
		// The patcher itself limits its writes to one a second.
		if r.conditions, err = conditions.New(conditions.Config{
			Client: to.unlimited, Node: to.node, Heartbeat: cfg.Kube.Heartbeat,
			StateFile: filepath.Join(cfg.StateDir, "conditions.json"),
			Healthy:   p.check, OnAck: r.conditionsAcked, Log: p.log,
		}); err != nil {
			return err
		}
		p.metrics.Own.MustRegister(r.conditions)
	}
	if cfg.Kube.WriteEvents {
		if r.events, err = events.New(events.Config{
			Node: to.node, Namespace: cfg.Kube.EventNamespace, Client: to.api, Pods: p.pods,
			Dir: cfg.StateDir, JournalDir: filepath.Join(cfg.StateDir, JournalDir), JournalSeq: p.journal.Seq(),
			JournalWritten: p.journal.Written, Log: p.log,
			Acked: func(fault time.Time) { r.latency.WithLabelValues(objectEvent).Observe(time.Since(fault).Seconds()) },
		}); err != nil {
			return err
		}
		p.metrics.Own.MustRegister(r.events)
	}
	if cfg.Kube.LeaseDuration > 0 {
		c := lease.Config{
			Client: to.unlimited, Node: to.node, Version: p.version, Log: p.log, Namespace: cfg.Kube.namespace(),
			Interval: cfg.Kube.LeaseRenew, Duration: cfg.Kube.LeaseDuration, Holder: p.agent.causes.Holder,
			Healthy: p.check, Degraded: func() []string { return p.self.notes() },
		}
		if r.conditions != nil {
			c.Types, c.OnEarlier = r.conditions.Types, r.conditions.Retire
		}
		if r.lease, err = lease.New(c); err != nil {
			return err
		}
	}
	p.metrics.Own.MustRegister(r, r.latency)
	return nil
}

// start starts the reporters, which run until ctx ends.
func (r *clusterReporter) start(ctx context.Context, g *errgroup.Group) {
	if r.conditions != nil {
		g.Go(func() error { return r.conditions.Run(ctx) })
	}
	if r.lease != nil {
		g.Go(func() error { return r.lease.Run(ctx) })
	}
	if r.events != nil {
		g.Go(func() error { return r.events.Run(ctx) })
	}
}

// add queues a journal entry. It must be called in journal order, and does not block.
func (r *clusterReporter) add(e journal.Entry) {
	if r.events != nil {
		r.events.Add(e)
	}
	if r.conditions == nil {
		return
	}
	for _, t := range e.Transitions {
		if t.Condition == nil {
			continue
		}
		r.changed = true
		var fault time.Time
		if e.Event != nil && e.Event.CPU != event.NoCPU {
			fault = e.Event.Time
		}
		r.mu.Lock()
		r.changesOf(t.Condition.Type).add(*t.Condition, fault)
		r.mu.Unlock()
	}
}

// changesOf returns the changes of a condition. The caller must hold mu.
func (r *clusterReporter) changesOf(conditionType string) *unwritten {
	u := r.changes[conditionType]
	if u == nil {
		u = &unwritten{}
		r.changes[conditionType] = u
	}
	return u
}

// flush reports the added entries up to seq, which the journal must have, and the current
// conditions if they changed.
func (r *clusterReporter) flush(seq uint64, now func() []problem.Condition) {
	if r.events != nil {
		r.events.Flush(seq)
	}
	if r.changed {
		r.changed = false
		r.set(now())
	}
}

func (r *clusterReporter) set(list []problem.Condition) {
	if r.conditions == nil {
		return
	}
	if err := r.conditions.Set(list); err != nil {
		r.log.Warn("some conditions are left out or changed", "error", err)
	}
}

func (r *clusterReporter) conditionsAcked(ack conditions.Ack) {
	if ack.Heartbeat {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range ack.Written {
		if fault := r.changesOf(c.Type).ack(c); !fault.IsZero() {
			r.latency.WithLabelValues(objectCondition).Observe(ack.At.Sub(fault).Seconds())
		}
	}
}
