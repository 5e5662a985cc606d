package agent

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/collector"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/collector/probe/active"
	"github.com/kernosis/kernosis/collector/probe/observe"
	"github.com/kernosis/kernosis/detector/problem"
)

// probes observes kubelet's probes. A nil probes is switched off.
type probes struct {
	cfg      Config
	log      *slog.Logger
	agent    *pipeline
	manager  *probe.Manager
	observer *observe.Observer
	source   func(context.Context) error // reads the pods from pods-file; nil without such a file
	listed   *pods.Listed                // the pods of that file; nil likewise
	failing  map[string]bool             // failing probes that an earlier process reported, by pod and group
}

// openProbes creates the manager, which tracks the results of probes. The observer, which detects
// them, is created by open.
func (p *parts) openProbes() error {
	if p.cfg.Probes.Mode == ProbesOff {
		return nil
	}
	fs := hostfs.New(p.cfg.HostRoot)
	seen := &probes{cfg: p.cfg, log: p.log, agent: p.agent, failing: map[string]bool{}}
	c := probe.Config{Report: seen.report, Log: p.log, Start: time.Now(), Failing: seen.wasFailing}
	asks, _ := p.cfg.Probes.asksKubelet()
	switch {
	case p.cfg.Probes.PodsFile != "":
		// Only a local file may make the agent probe a pod itself.
		c.Prober = active.New(fs)
		seen.listed = pods.NewListed(func() {})
		f := pods.NewFile(p.cfg.Probes.PodsFile, func(list []*probe.Pod, at time.Time) {
			seen.take(list)
			replace(seen.listed, list, at)
		}, p.log)
		seen.source = f.Run
		p.metrics.Own.MustRegister(f)
	case p.cfg.cluster == nil && !asks:
		p.log.Info("probes are not observed: without an API server, kubelet-url or pods-file, the node's pods are unknown")
		return nil
	}
	seen.manager = probe.New(c)
	p.metrics.Own.MustRegister(seen.manager)
	p.probes = seen
	return nil
}

// report passes on the manager's events. It adds the container's cgroup if that is known, so that
// operations of a Diagnosis can look at it.
func (p *probes) report(ev *event.Event) {
	if ev.Container != nil && ev.Cgroup == nil {
		if path := p.observer.Group(ev.Container.ID); path != "" {
			ev.Cgroup = &event.Cgroup{Path: path}
		}
	}
	p.agent.observe(ev)
}

// wantsPods reports whether the source of the node's pods has to pass them to p.
func (p *probes) wantsPods() bool { return p != nil && p.source == nil }

func (p *probes) take(list []*probe.Pod) {
	p.manager.ReplacePods(list)
	p.observer.Listed()
}

// whole returns the callbacks that pass the API server's pods to p.
func (p *probes) whole() *pods.Whole {
	return &pods.Whole{
		Client: p.cfg.cluster.unlimited,
		Trim: func(full *corev1.Pod) any {
			pod, err := pods.Convert(full)
			if err != nil {
				p.log.Debug("parts of a pod are not probed as kubelet does", "error", err)
			}
			if pod == nil {
				return nil
			}
			return pod
		},
		Changed: func(pod any) {
			p.manager.AddPod(pod.(*probe.Pod))
			p.observer.Changed()
		},
		Gone: func(pod any) {
			p.manager.RemovePod(pod.(*probe.Pod).UID)
			p.observer.Changed()
		},
		Listed: func() { p.observer.Listed() },
	}
}

func (p *probes) open(sources *collector.Sources) error {
	if p == nil {
		return nil
	}
	c := observe.Config{
		Manager: p.manager, Sockets: targetsOf{sources, p.cfg.Probes.comms()}, FS: hostfs.New(p.cfg.HostRoot),
		Comms: p.cfg.Probes.comms(), State: p.state,
	}
	if asks, why := p.cfg.Probes.asksKubelet(); asks {
		pages, err := pods.NewAsker(p.cfg.Probes.source(p.cfg.HostRoot))
		if err != nil {
			return err
		}
		c.Kubelet = &observe.KubeletMetrics{Pages: pages}
	} else {
		p.log.Info("kubelet's probe counters are not read: failures without a socket error are missed", "reason", why)
	}
	if p.cfg.cluster != nil && p.cfg.Probes.KubeletEvents {
		c.Words = &pods.Events{Client: p.cfg.cluster.unlimited}
	}
	p.observer = observe.New(c)
	for _, pr := range p.agent.engine.Problems() {
		if strings.HasPrefix(pr.Rule, "probe-") && pr.State == problem.Firing && pr.Pod != "" {
			p.failing[pr.Pod+" "+pr.Group] = true
		}
	}
	p.agent.metrics.Own.MustRegister(p.observer)
	return nil
}

// wasFailing reports whether a failure of the probe was reported before the restart.
func (p *probes) wasFailing(k probe.Key) bool {
	for group := range p.failing {
		if strings.HasPrefix(group, k.PodUID+" ") && strings.HasSuffix(group, " "+k.Container+", "+string(k.Kind)) {
			return true
		}
	}
	return false
}

// emit returns an Emit that passes on the events which the observer does not take.
func (p *probes) emit(next collector.Emit) collector.Emit {
	if p == nil {
		return next
	}
	return func(ev *event.Event) {
		if !p.observer.Take(ev) {
			next(ev)
		}
	}
}

// start starts the manager and the observer, which run until ctx ends.
func (p *probes) start(ctx context.Context, g *errgroup.Group) {
	if p == nil {
		return
	}
	// The manager itself can see failures from now on.
	p.reportState("probe", nil)
	g.Go(func() error { return p.manager.Run(ctx) })
	g.Go(func() error { return p.observer.Run(ctx) })
	if p.source != nil {
		g.Go(func() error { return p.source(ctx) })
	}
}

// state reports that a part of the observer began to work, or failed with err.
func (p *probes) state(part string, err error) {
	if err != nil {
		p.log.Warn("kubelet's probes are only partly observed", "part", part, "error", err)
	}
	p.reportState("probe/"+part, err)
}

func (p *probes) reportState(stem string, err error) {
	d := event.SourceData{Stem: stem, Up: err == nil}
	if err != nil {
		d.Reason = display.Safe(err.Error(), 500)
	}
	p.agent.observe(hostfs.Stamped(event.Event{Kind: event.Source, Source: "probe", SourceUp: &d}))
}

// targetsOf makes the sources watch kubelet's connections.
type targetsOf struct {
	sources *collector.Sources
	comms   []string
}

// ownTargets is the name of the target source that probes set.
const ownTargets = "probes"

func (t targetsOf) Set(list []observe.Target) error {
	out := make([]collector.Target, len(list))
	for i, o := range list {
		out[i] = collector.Target{Name: o.Name, Address: o.Address, Port: o.Port, NetNS: o.NetNS}
		if o.SlowAfter > 0 {
			out[i].SlowAfter, out[i].SlowOpeners = o.SlowAfter, strings.Join(t.comms, ",")
		}
	}
	return t.sources.SetTargets(ownTargets, out)
}

func (t targetsOf) Counts() ([]observe.Count, error) {
	list, err := t.sources.Outcomes(ownTargets)
	if err != nil {
		return nil, err
	}
	out := make([]observe.Count, len(list))
	for i := range list {
		o := &list[i]
		out[i] = observe.Count{Name: o.Target.Name, Succeeded: o.Succeeded, Started: o.Started}
	}
	return out, nil
}
