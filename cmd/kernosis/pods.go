package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/collector/probe/podsource"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/reporter/kube/pods"
)

// nodePods knows the node's pods, deleted ones for some minutes.
type nodePods interface {
	Pod(uid string) (pods.Pod, bool)
	Named(namespace, name string) (pods.Pod, bool)
	Known(at time.Time) bool   // whether all pods are known that the node had then
	Await(ctx context.Context) // until the pods have been listed
}

// podSource is where the agent knows the node's pods from. A nil one knows none.
type podSource struct {
	nodePods
	run       func(context.Context) error // nil: somebody else runs it
	whole     operation.Pods              // has them whole, where a diagnosis asks; nil: nobody does
	ofKubelet bool
	failure   func() error // why kubelet could not be asked; nil: it is not
	// doubt is why tenants must not have operations run on what whole says; nil: they may.
	doubt error
}

// openPods makes what knows the node's pods. nil: nobody does, or nobody needs them.
func openPods(cfg agentConfig, a *agent, seen *probes, log *slog.Logger) (*podSource, error) {
	asks, why := cfg.Probes.asksKubelet()
	switch {
	case cfg.Probes.PodsFrom == podsFromKubelet && !asks:
		return nil, cfg.origins.Errorf("pods-from", "kubelet is not asked: %s", why)
	case cfg.Probes.PodsFrom == podsFromKubelet, cfg.kube == nil && seen.wantsPods() && asks:
		return podsOfKubelet(cfg, a, seen, log)
	case cfg.kube != nil && (cfg.Kube.WriteEvents || cfg.Diagnose.On || seen.wantsPods()):
		return podsOfServer(cfg, seen)
	case seen != nil && seen.listed != nil:
		return &podSource{nodePods: seen.listed}, nil
	}
	return nil, nil
}

// podsOfServer watches the API server.
func podsOfServer(cfg agentConfig, seen *probes) (*podSource, error) {
	client, err := kubernetes.NewForConfig(cfg.kube.rest)
	if err != nil {
		return nil, err
	}
	whole, err := pods.NewReader(client, cfg.kube.node)
	if err != nil {
		return nil, err
	}
	c := pods.Config{Node: cfg.kube.node}
	if seen.wantsPods() {
		c.Whole = seen.whole()
	} else if c.Client, err = metadata.NewForConfig(unlimited(cfg.kube.rest)); err != nil {
		return nil, err
	}
	watch, err := pods.New(c)
	if err != nil {
		return nil, err
	}
	return &podSource{nodePods: watch, run: watch.Run, whole: whole}, nil
}

// podsOfKubelet asks kubelet again and again, and sooner where somebody asks for a pod that is
// not known: then it is a new one.
func podsOfKubelet(cfg agentConfig, a *agent, seen *probes, log *slog.Logger) (*podSource, error) {
	c := cfg.Probes.source(cfg.HostRoot)
	whole, err := podsource.NewReader(c)
	if err != nil {
		return nil, err
	}
	var kubelet *podsource.Kubelet
	listed := pods.NewListed(func() { kubelet.Ask() })
	c.Log, c.Sink = log, func(list []*probe.Pod, at time.Time) {
		if seen.wantsPods() {
			seen.take(list)
		}
		replace(listed, list, at)
	}
	if kubelet, err = podsource.NewKubelet(c); err != nil {
		return nil, err
	}
	a.metrics.Own.MustRegister(kubelet)
	s := &podSource{nodePods: listed, run: kubelet.Run, whole: whole, ofKubelet: true, failure: kubelet.Failure}
	if !c.Verified() {
		s.doubt = errors.New("pods come from a kubelet whose certificate is not verified: outside the system namespace that is no base for what may be looked at (kubelet-ca, kubelet-cert)")
	}
	return s, nil
}

// replace hands a whole set of pods over to who knows them by their UIDs.
func replace(known *pods.Listed, list []*probe.Pod, at time.Time) {
	now := make([]pods.Pod, len(list))
	for i, l := range list {
		now[i] = pods.Pod{UID: l.UID, Namespace: l.Namespace, Name: l.Name, Labels: l.Labels}
	}
	known.Replace(now, at)
}

// start goes on knowing them until ctx ends.
func (s *podSource) start(ctx context.Context, g *errgroup.Group) {
	if s != nil && s.run != nil {
		g.Go(func() error { return s.run(ctx) })
	}
}
