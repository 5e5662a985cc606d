package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// annotationTypes is the annotation of the agent's Lease that lists its condition types.
const annotationTypes = "kernosis.io/condition-types"

// lease returns the agent's Lease, or nil.
func (c *cluster) lease(t testing.TB) *coordinationv1.Lease {
	t.Helper()
	l, err := c.api.CoordinationV1().Leases(system).Get(t.Context(), "kernosis-"+c.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// ownTypes returns the condition types that the agent's Lease lists; none before it has reported.
func (c *cluster) ownTypes(t testing.TB) []string {
	t.Helper()
	l := c.lease(t)
	if l == nil {
		return nil
	}
	return strings.Split(l.Annotations[annotationTypes], ",")
}

// conditions returns the conditions of the node by type.
func (c *cluster) conditions(t testing.TB) map[string]corev1.NodeCondition {
	t.Helper()
	n, err := c.api.CoreV1().Nodes().Get(t.Context(), c.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return byType(n)
}

func byType(n *corev1.Node) map[string]corev1.NodeCondition {
	all := map[string]corev1.NodeCondition{}
	for _, condition := range n.Status.Conditions {
		all[string(condition.Type)] = condition
	}
	return all
}

// condition waits until a condition has a status, and returns it.
func (c *cluster) condition(t testing.TB, kind string, status corev1.ConditionStatus, within time.Duration) (got corev1.NodeCondition) {
	t.Helper()
	testenv.UntilShown(t, fmt.Sprintf("%s %s", kind, status), within, func() (bool, string) {
		got = c.conditions(t)[kind]
		return got.Status == status, fmt.Sprintf("%+v", got)
	})
	return got
}

// known waits until all of the agent's conditions exist and none is Unknown. A condition that is
// True comes from the machine itself: the test's own faults have not started or are over.
func (c *cluster) known(t testing.TB) {
	t.Helper()
	testenv.UntilShown(t, "conditions that are known", time.Minute, func() (bool, string) {
		own, all := c.ownTypes(t), c.conditions(t)
		var other []string
		for _, kind := range own {
			if has := all[kind]; has.Status != corev1.ConditionFalse && has.Status != corev1.ConditionTrue {
				other = append(other, fmt.Sprintf("%s %s %s: %s", kind, has.Status, has.Reason, has.Message))
			}
		}
		return len(own) > 5 && len(other) == 0, fmt.Sprintf("of %d: %s", len(own), strings.Join(other, "\n"))
	})
	for kind, has := range c.conditions(t) {
		if has.Status == corev1.ConditionTrue && kind != string(corev1.NodeReady) {
			t.Logf("%s: %s", kind, has.Message)
		}
	}
}

// neverUnknown watches the agent's conditions until the end of the test, and fails the test for
// each that is Unknown or missing.
func (c *cluster) neverUnknown(t *testing.T) {
	t.Helper()
	own := c.ownTypes(t)
	if len(own) == 0 {
		t.Fatal("the agent has no conditions")
	}
	var mu sync.Mutex
	var wrong []string
	look := func(n *corev1.Node) {
		all := byType(n)
		mu.Lock()
		defer mu.Unlock()
		for _, kind := range own {
			has, ok := all[kind]
			if ok && has.Status != corev1.ConditionUnknown {
				continue
			}
			if said := fmt.Sprintf("%s is %q: %s: %s", kind, has.Status, has.Reason, has.Message); !slices.Contains(wrong, said) {
				wrong = append(wrong, said)
			}
		}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(c.api, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = "metadata.name=" + c.Name
	}))
	nodes := factory.Core().V1().Nodes().Informer()
	if _, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { look(o.(*corev1.Node)) },
		UpdateFunc: func(_, o any) { look(o.(*corev1.Node)) },
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	factory.StartWithContext(ctx)
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
		mu.Lock()
		defer mu.Unlock()
		for _, w := range wrong {
			t.Error(w)
		}
	})
	if !cache.WaitForCacheSync(t.Context().Done(), nodes.HasSynced) {
		t.Fatal("the node can't be watched")
	}
}
