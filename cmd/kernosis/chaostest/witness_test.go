package chaostest_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/reporter/kube/events"
)

// witness watches the API server directly, past the proxy that harms the agent's requests, and keeps
// what no later state shows.
type witness struct {
	mu       sync.Mutex
	statuses []corev1.ConditionStatus // that AppBroken had on the Node, without repetitions
	counts   map[types.UID]int32      // of Events
	granted  map[types.UID]bool       // Diagnoses that had a slot of the policy
	budget   *apitest.BudgetWatch
	wrong    []string
}

// watch starts a witness of the world's Nodes, Events and policy.
func (w *world) watch() *witness {
	w.t.Helper()
	s := &witness{counts: map[types.UID]int32{}, granted: map[types.UID]bool{}, budget: apitest.NewBudgetWatch()}
	all, err := cache.New(w.server.Admin(), cache.Options{
		Scheme:                   w.repairs.client.Scheme(),
		DefaultWatchErrorHandler: func(context.Context, *toolscache.Reflector, error) {}, // the test kills the API server
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Event{}: {
				Namespaces: map[string]cache.Config{metav1.NamespaceDefault: {}},
				Field:      fields.OneTermEqualSelector("involvedObject.name", w.node),
			},
			&corev1.Node{}:                {Field: fields.OneTermEqualSelector("metadata.name", w.node)},
			&v1alpha1.RemediationPolicy{}: {Field: fields.OneTermEqualSelector("metadata.name", policyOf(w.node))},
		},
	})
	w.must(err)
	observe(w, all, &corev1.Event{}, s.event)
	observe(w, all, &corev1.Node{}, s.node)
	observe(w, all, &v1alpha1.RemediationPolicy{}, s.policy)
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = all.Start(ctx)
	}()
	w.t.Cleanup(func() { cancel(); <-ended })
	if !all.WaitForCacheSync(ctx) {
		w.t.Fatal("the API server can't be watched")
	}
	return s
}

// observe calls do with each version of the objects of a kind.
func observe[O client.Object](w *world, all cache.Cache, kind O, do func(O)) {
	w.t.Helper()
	informer, err := all.GetInformer(w.t.Context(), kind, cache.BlockUntilSynced(false))
	w.must(err)
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { do(o.(O)) },
		UpdateFunc: func(_, o any) { do(o.(O)) },
	})
	w.must(err)
}

// event: the count of an Event only grows.
func (s *witness) event(e *corev1.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.counts[e.UID]; e.Count < was {
		s.wrong = append(s.wrong, fmt.Sprintf("the count of Event %s (%s) fell from %d to %d", e.Name, e.Reason, was, e.Count))
	}
	s.counts[e.UID] = e.Count
}

func (s *witness) node(n *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range n.Status.Conditions {
		if c.Type == appBroken && c.Status != corev1.ConditionUnknown && (len(s.statuses) == 0 || s.statuses[len(s.statuses)-1] != c.Status) {
			s.statuses = append(s.statuses, c.Status)
		}
	}
}

func (s *witness) policy(p *v1alpha1.RemediationPolicy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.budget.Policy(p)
	for _, r := range p.Status.Repairs {
		s.granted[r.Diagnosis] = true
	}
}

// sawGrant reports whether a Diagnosis ever had a slot of the policy.
func (s *witness) sawGrant(of types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.granted[of]
}

// checkWitness checks what the witness has seen.
func (w *world) checkWitness() {
	w.t.Helper()
	s := w.witness
	s.mu.Lock()
	defer s.mu.Unlock()
	w.checked("an Event's count only grows")
	for _, wrong := range s.wrong {
		if len(w.losses.closed) == 0 { // an agent that was killed before it could save counts on from less
			w.t.Error(wrong)
		}
	}
	w.checked("at most maxNodes repairs at once")
	if s.budget.MostSlots > maxNodes {
		w.t.Errorf("%d nodes were under repair at once, at most %d are allowed", s.budget.MostSlots, maxNodes)
	}
	// A line that is read again may raise the condition again, and one that is read late be followed at once.
	w.checked("a condition changes only when the truth does")
	if len(s.statuses) > w.turns+1 && len(w.losses.closed) == 0 {
		w.t.Errorf("AppBroken was %v in turn, but the app changed %d times", s.statuses, w.turns)
	}
}

// ownRules are the rules, with the reasons of their Events, of what only this test causes: tests in other folders may
// cause filesystem errors at the same time.
var ownRules = []struct{ rules, reasons []string }{ //nolint:gochecknoglobals // a constant
	{[]string{"app-hiccup"}, []string{"AppHiccup"}},
	{[]string{"app-fell", "condition/AppBroken"}, []string{"AppFellOver", "AppIsFine"}},
	{[]string{"oom-kill"}, []string{"OOMKilling"}},
	{[]string{"oom-kill-frequent", "condition/FrequentOOMKilling"}, []string{"FrequentOOMKilling", "NoFrequentOOMKilling"}},
}

// occurrences returns the sums of the counts of the agent's Events on the Node, by reason.
func (w *world) occurrences() (byReason map[string]int, err error) {
	list, err := w.server.Client().CoreV1().Events(metav1.NamespaceDefault).List(w.t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + w.node,
	})
	if err != nil {
		return nil, err
	}
	byReason = map[string]int{}
	for i := range list.Items {
		if e := &list.Items[i]; e.ReportingController == events.Component {
			byReason[e.Reason] += int(e.Count)
		}
	}
	return byReason, nil
}

// checkOccurrences: what the agent's counters say has occurred, minus what they say is dropped, is what the
// API server has. A state that was lost had counted more.
func (w *world) checkOccurrences() {
	w.t.Helper()
	w.checked("Events + dropped = occurred")
	w.await("Events for all occurrences", func() (bool, string) {
		ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
		defer cancel()
		all, err := w.metrics(ctx)
		if err != nil {
			return false, err.Error()
		}
		sent, err := w.occurrences()
		if err != nil {
			return false, err.Error()
		}
		for _, own := range ownRules {
			have, want := 0, 0
			for _, reason := range own.reasons {
				have += sent[reason]
			}
			for _, rule := range own.rules {
				want += int(all.Sum("kernosis_events_occurred_total", "rule", rule) - all.Sum("kernosis_events_dropped_total", "rule", rule))
			}
			if have != want && (have < want || len(w.losses.closed) == 0) {
				return false, fmt.Sprintf("%v: %d in Events, %d occurred and were not dropped", own.rules, have, want)
			}
		}
		return true, ""
	})
}
