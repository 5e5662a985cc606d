package start

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// maxTriggers is how many Triggers an engine accepts.
const maxTriggers = 4096

// askAgain is the pause before the API server is asked again for kinds that it does not serve.
const askAgain = 5 * time.Second

// compiled is the result of compiling a version of a Trigger.
type compiled struct {
	uid        string
	generation int64
	matcher    *trigger.Matcher
	err        error
}

// watchTriggers returns a channel that receives when Triggers have changed. It blocks until
// Triggers and Nodes are listed; false: the context has ended.
func (p *Part) watchTriggers(ctx context.Context) (changes <-chan struct{}, ok bool) {
	var once sync.Once
	ok = until(ctx, askAgain, func() bool {
		var err error
		if changes, err = p.watchOnce(ctx); err != nil && ctx.Err() == nil {
			once.Do(func() {
				p.cfg.Log.Error("can't watch triggers; alerts, Events and schedules start no diagnoses", "error", err)
			})
		}
		return err == nil
	})
	return changes, ok
}

// until tries until it succeeds, with pauses; false: the context has ended.
func until(ctx context.Context, pause time.Duration, try func() bool) bool {
	for !try() {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (p *Part) watchOnce(ctx context.Context) (<-chan struct{}, error) {
	// Check with a List first: a watch of a kind that is missing or forbidden would never sync, and
	// would keep the whole process from becoming ready.
	if err := p.live.List(ctx, &v1alpha1.TriggerList{}, client.Limit(1)); err != nil {
		return nil, err
	}
	if _, err := p.cache.GetInformer(ctx, &corev1.Node{}); err != nil {
		return nil, err
	}
	informer, err := p.cache.GetInformer(ctx, &v1alpha1.Trigger{})
	if err != nil {
		return nil, err
	}
	changes := make(chan struct{}, 1)
	notify := func() {
		select {
		case changes <- struct{}{}:
		default: // already notified
		}
	}
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() },
		UpdateFunc: func(was, is any) {
			a, ok := was.(*v1alpha1.Trigger)
			b, ok2 := is.(*v1alpha1.Trigger)
			// Status updates don't matter.
			if !ok || !ok2 || a.Generation != b.Generation || a.UID != b.UID || a.DeletionTimestamp.IsZero() != b.DeletionTimestamp.IsZero() {
				notify()
			}
		},
		DeleteFunc: func(any) { notify() },
	})
	if err != nil {
		return nil, err
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return nil, errors.New("the Triggers could not be listed")
	}
	return changes, nil
}

// install puts the valid Triggers in force. Another part reports in their status why the others are
// invalid.
func (p *Part) install(ctx context.Context) {
	var list v1alpha1.TriggerList
	if err := p.cache.List(ctx, &list); err != nil {
		if ctx.Err() == nil {
			p.cfg.Log.Error("can't list triggers; the previous ones stay in force", "error", err)
		}
		return
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.Trigger) int { return strings.Compare(a.Name, b.Name) })
	var all, events []*trigger.Matcher
	now := make(map[string]compiled, len(list.Items))
	refused, over := 0, 0
	for i := range list.Items {
		t := &list.Items[i]
		if !t.DeletionTimestamp.IsZero() || t.Spec.SourceTemplate.ProblemTemplate != nil {
			continue // agents handle Triggers of problems
		}
		c := p.compile(t)
		now[t.Name] = c
		switch {
		case c.err != nil:
			refused++
		case len(all) == maxTriggers:
			over++
		default:
			all = append(all, c.matcher)
			if c.matcher.Source() == trigger.SourceEvent {
				events = append(events, c.matcher)
			}
		}
	}
	if over > 0 {
		p.cfg.Log.Error("too many triggers; the last ones by name are ignored", "most", maxTriggers, "left_out", over)
	}
	p.compiled = now
	var err error
	p.look(func(e *trigger.Engine) { err = e.Install(all) })
	if err != nil {
		p.cfg.Log.Error("can't apply the triggers; the previous ones stay in force", "error", err)
		return
	}
	p.matchers.Store(&events)
	p.counts.installed(all, refused, over)
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// compile compiles a Trigger, unless it is unchanged.
func (p *Part) compile(t *v1alpha1.Trigger) compiled {
	if c, ok := p.compiled[t.Name]; ok && c.uid == string(t.UID) && c.generation == t.Generation {
		return c
	}
	m, err := trigger.Compile(t)
	if err != nil {
		p.cfg.Log.Warn("trigger ignored", "trigger", t.Name, "error", err)
	}
	return compiled{uid: string(t.UID), generation: t.Generation, matcher: m, err: err}
}

// inUse returns how many Triggers are in force.
func (p *Part) inUse() (n int) {
	p.look(func(e *trigger.Engine) { n = len(e.Stats().Triggers) })
	return n
}

// wantsEvents reports whether a Trigger needs Events.
func (p *Part) wantsEvents() bool {
	m := p.matchers.Load()
	return m != nil && len(*m) > 0
}

// pod looks up a pod, and returns nil if there is none. The controller does not cache pods: there
// are many, and few are needed.
func (p *Part) pod(ctx context.Context, name types.NamespacedName) (*trigger.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, podWithin)
	defer cancel()
	pod, err := p.api.CoreV1().Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("pod %s/%s: %w", name.Namespace, name.Name, err)
	}
	return &trigger.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Labels: pod.Labels, Node: pod.Spec.NodeName}, nil
}

// lookups returns the pods that were looked up, and the Nodes of the manager's cache.
func (p *Part) lookups(pods map[types.NamespacedName]*trigger.Pod) trigger.Known {
	return trigger.Known{
		Pod: func(namespace, name string) (*trigger.Pod, bool) {
			pod, looked := pods[types.NamespacedName{Namespace: namespace, Name: name}]
			return pod, looked
		},
		Node: func(name string) bool {
			// The cache answers at once. Only NotFound is a definite answer.
			err := p.cache.Get(context.Background(), client.ObjectKey{Name: name}, &corev1.Node{})
			return !apierrors.IsNotFound(err)
		},
	}
}
