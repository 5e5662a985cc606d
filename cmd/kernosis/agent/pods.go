package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/metadata"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/tenancy"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/diagnose/worker/kube"
)

// nodePods looks up the node's pods, including recently deleted ones for some minutes.
type nodePods interface {
	Pod(uid string) (pods.Pod, bool)
	Named(namespace, name string) (pods.Pod, bool)
	Known(at time.Time) bool   // whether all pods that the node had at that time are known
	Await(ctx context.Context) // waits until the pods have been listed
}

type podSource struct {
	nodePods
	run     func(context.Context) error // nil: another part runs it
	whole   operation.Pods              // reads whole pods for diagnoses; nil: not available
	failure func() error                // returns why kubelet's pods could not be read; nil: kubelet is not the source
	// doubt is why operations of tenants must not rely on whole; nil: they may.
	doubt error
}

// openPods creates the source of the node's pods, if there is one and a part needs it.
func (p *parts) openPods() (err error) {
	cfg := &p.cfg
	asks, why := cfg.Probes.asksKubelet()
	switch {
	case cfg.Probes.PodsFrom == PodsFromKubelet && !asks:
		err = cfg.origins.Errorf("pods-from", "can't get pods from kubelet: %s", why)
	case cfg.Probes.PodsFrom == PodsFromKubelet, cfg.cluster == nil && p.probes.wantsPods() && asks:
		p.pods, err = p.podsOfKubelet()
	case cfg.cluster != nil && (cfg.Kube.WriteEvents || cfg.Diagnose.On || p.probes.wantsPods()):
		p.pods, err = podsOfServer(cfg.cluster, p.probes)
	case p.probes != nil && p.probes.listed != nil:
		p.pods = &podSource{nodePods: p.probes.listed}
	}
	if err != nil {
		return output.Failed(err)
	}
	if p.pods != nil {
		p.agent.pods = p.pods
	}
	p.agent.warnOfLabels(p.rules)
	return nil
}

func podsOfServer(of *cluster, seen *probes) (*podSource, error) {
	var err error
	c := pods.WatchConfig{Node: of.node}
	if seen.wantsPods() {
		c.Whole = seen.whole()
	} else if c.Client, err = metadata.NewForConfig(unlimited(of.rest)); err != nil {
		return nil, err
	}
	watch, err := pods.NewWatch(c)
	if err != nil {
		return nil, err
	}
	return &podSource{nodePods: watch, run: watch.Run, whole: &pods.Reader{Client: of.api, Node: of.node}}, nil
}

// podsOfKubelet returns a source that polls kubelet. It polls at once when an unknown pod is looked
// up, because that pod may be new.
func (p *parts) podsOfKubelet() (*podSource, error) {
	c := p.cfg.Probes.source(p.cfg.HostRoot)
	c.InPod = exists(ownToken) // no static pod has a service account
	whole, err := pods.NewAsker(c)
	if err != nil {
		return nil, err
	}
	var kubelet *pods.Kubelet
	listed := pods.NewListed(func() { kubelet.Ask() })
	take := func(list []*probe.Pod, at time.Time) {
		if p.probes.wantsPods() {
			p.probes.take(list)
		}
		replace(listed, list, at)
	}
	if kubelet, err = pods.NewKubelet(c, take, p.log); err != nil {
		return nil, err
	}
	p.metrics.Own.MustRegister(kubelet)
	s := &podSource{nodePods: listed, run: kubelet.Run, whole: whole, failure: kubelet.Failure}
	if !c.Verified() {
		s.doubt = errors.New("kubelet's certificate is not verified, so its list of pods can't authorize diagnoses outside the system namespace (set kubelet-ca or kubelet-cert)")
	}
	return s, nil
}

func replace(known *pods.Listed, list []*probe.Pod, at time.Time) {
	now := make([]pods.Pod, len(list))
	for i, l := range list {
		now[i] = pods.Pod{UID: l.UID, Namespace: l.Namespace, Name: l.Name, Labels: l.Labels}
	}
	known.Replace(now, at)
}

// tenantPod returns the pod of a Diagnosis outside the system namespace.
func (s *podSource) tenantPod(ctx context.Context, in *kube.Store, of *v1alpha1.Diagnosis) (tenancy.Pod, error) {
	if s.doubt != nil {
		return tenancy.Pod{}, tenancy.Refusals{s.doubt.Error()}
	}
	p, err := s.whole.Pod(ctx, of.Namespace, of.Spec.PodReference.Name)
	switch {
	case err == nil:
		return tenancy.PodOf(p, of.Spec.PodReference)
	case errors.Is(err, pods.ErrNoPod): // a starting kubelet does not have all pods yet
		return tenancy.Pod{}, fmt.Errorf("%w: %w", worker.ErrLater, worker.ErrGone)
	case s.failure != nil: // kubelet may answer later
		return tenancy.Pod{}, fmt.Errorf("%w: %w", worker.ErrLater, err)
	}
	return tenancy.Pod{}, in.Explain(ctx, "pod of the Diagnosis", err)
}

// podLabels returns the labels to add to an event: those of its container's pod, if a rule in force
// reads them. The agent's lock is held.
func (a *pipeline) podLabels(ev *event.Event) map[string]string {
	if ev.Container == nil || ev.Container.PodUID == "" || a.pods == nil || len(a.engine.Rules().PodLabelReaders()) == 0 {
		return nil
	}
	p, _ := a.pods.Pod(ev.Container.PodUID)
	return event.SafeLabels(p.Labels)
}

func (a *pipeline) namePod(c *event.Container) {
	if a.pods == nil {
		return
	}
	if p, ok := a.pods.Pod(c.PodUID); ok {
		c.PodName, c.PodNamespace = display.Safe(p.Name, 253), display.Safe(p.Namespace, 253)
	}
}

// awaitPodsFor is how long events wait for the first list of the node's pods. Until then they stay in
// the ring buffers.
const awaitPodsFor = 3 * time.Second

// awaitPods waits until the pods are listed if rules read pod labels. Otherwise events that
// happened while no agent ran would have no labels.
func (a *pipeline) awaitPods(ctx context.Context, rules *detector.RuleSet) {
	if a.pods == nil || len(rules.PodLabelReaders()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, awaitPodsFor)
	defer cancel()
	a.pods.Await(ctx)
}

// warnOfLabels logs a warning if rules read pod labels but the node's pods are unknown.
func (a *pipeline) warnOfLabels(rules *detector.RuleSet) {
	if readers := rules.PodLabelReaders(); a.pods == nil && len(readers) > 0 {
		a.log.Warn("pod.labels is empty in all events: without an API server, kubelet-url or pods-file, the node's pods are unknown", "rules", readers)
	}
}

// podName returns a pod's namespace and name, or its UID if they are unknown.
func (a *pipeline) podName(uid string) string {
	if a.pods != nil {
		if p, ok := a.pods.Pod(uid); ok {
			return p.Namespace + "/" + p.Name
		}
	}
	return uid
}
