package trigger_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/trigger"
)

// podsOf returns a Known with exactly these pods.
func podsOf(pods ...*trigger.Pod) trigger.Known {
	return trigger.Known{Pod: func(namespace, name string) (*trigger.Pod, bool) {
		for _, p := range pods {
			if p.Namespace == namespace && p.Name == name {
				return p, true
			}
		}
		return nil, true
	}}
}

// nodesOf returns a Known with exactly these nodes.
func nodesOf(nodes ...string) trigger.Known {
	return trigger.Known{Node: func(name string) bool {
		return slices.Contains(nodes, name)
	}}
}

const crashLoop = `{operationSet: s, sourceTemplate: {prometheusAlertTemplate: {regexp: {alertName: KubePodCrashLooping},
	podNamespaceReferenceLabel: namespace, podNameReferenceLabel: pod, nodeNameReferenceLabel: node}}}`

func crash(labels ...string) *trigger.Alert {
	a := &trigger.Alert{Labels: map[string]string{"alertname": "KubePodCrashLooping", "namespace": "shop", "pod": "db-0"}, StartsAt: start}
	for i := 0; i < len(labels); i += 2 {
		a.Labels[labels[i]] = labels[i+1]
	}
	return a
}

func TestAnAlertsPodIsLookedUp(t *testing.T) {
	e := engineWith(t, crashLoop)
	if diff := cmp.Diff([]types.NamespacedName{{Namespace: "shop", Name: "db-0"}}, e.PodsOfAlert(crash(), start)); diff != "" {
		t.Error(diff)
	}
	// The pod's own node overrides the one that an exporter names.
	dx := only(t, e.Alert(crash("node", "n1"), podsOf(&trigger.Pod{Namespace: "shop", Name: "db-0", UID: "u", Node: "n3"}), start))
	if dx.Spec.NodeName != "n3" || dx.Spec.Parameters["podUID"] != "u" || dx.Spec.Parameters["node"] != "n3" {
		t.Errorf("%+v", dx.Spec)
	}
	// The pod is not requested for an alert that is decided on, or withheld regardless of the pod.
	if got := e.PodsOfAlert(crash("node", "n1"), start); got != nil {
		t.Error(got)
	}
	e = engineWith(t, `{rateLimit: {count: 1, within: 1h}, `+crashLoop[1:])
	only(t, e.Alert(crash(), podsOf(&trigger.Pod{Namespace: "shop", Name: "db-0"}), start))
	if got := e.PodsOfAlert(crash("pod", "db-1"), start); got != nil {
		t.Error(got)
	}
	resolved := crash("pod", "db-2")
	resolved.Over = true
	if got := engineWith(t, crashLoop).PodsOfAlert(resolved, start); got != nil {
		t.Error(got)
	}
}

func TestWhatIsNotThereIsNotDiagnosed(t *testing.T) {
	e := engineWith(t, crashLoop)
	none(t, e.Alert(crash(), podsOf(), start))
	none(t, e.Alert(crash("pod", "db-1", "node", "n9"), nodesOf("n1"), start))
	only(t, e.Alert(crash("pod", "db-2", "node", "n1"), nodesOf("n1"), start))
	counts(t, e, "t0", 1, map[string]uint64{trigger.WithheldUnknownPod: 1, trigger.WithheldUnknownNode: 1})
	// What was withheld for this reason has not started a cooldown, nor counted for the rate limit.
	e = engineWith(t, `{cooldown: 24h, rateLimit: {count: 1, within: 1h}, `+crashLoop[1:])
	none(t, e.Alert(crash(), podsOf(), start))
	again := crash()
	again.StartsAt = after(1)
	only(t, e.Alert(again, podsOf(&trigger.Pod{Namespace: "shop", Name: "db-0"}), after(1)))

	e = engineWith(t, `{operationSet: s, nodeName: n1, sourceTemplate: {cronTemplate: {schedule: "@every 1s"}}}`)
	none(t, e.Tick(trigger.Known{}, start)) // the schedule begins now
	none(t, e.Tick(nodesOf("n2"), after(1e9)))
	counts(t, e, "t0", 0, map[string]uint64{trigger.WithheldUnknownNode: 1})
}

func TestAnEventsPodIsLookedUp(t *testing.T) {
	believed := strings.Replace(failedMount, "regexp: {", "regexp: {namespace: ^shop$, ", 1)
	e := engineWith(t, believed)
	ev := mount(start)
	if diff := cmp.Diff([]types.NamespacedName{{Namespace: "shop", Name: "db-0"}}, e.PodsOfEvent(ev, start)); diff != "" {
		t.Error(diff)
	}
	// If the Trigger restricts whose Events are trusted, a pod that is gone can still be diagnosed
	// on the node that the Event names.
	if dx := only(t, e.KubeEvent(ev, podsOf(), start)); dx.Spec.NodeName != "n3" {
		t.Error(dx.Spec.NodeName)
	}
	if got := e.PodsOfEvent(ev, start); got != nil {
		t.Error(got)
	}
	e = engineWith(t, believed)
	ev.Source.Host = ""
	none(t, e.KubeEvent(ev, podsOf(), start))
	counts(t, e, "t0", 0, map[string]uint64{trigger.WithheldUnknownPod: 1})
	m := compile(t, newTrigger(t, "m", failedMount))
	other := mount(start)
	other.Reason = "Pulled"
	for ev, want := range map[*corev1.Event]bool{ev: true, other: false} {
		if matches, trusted := m.MatchesEvent(ev); matches != want || trusted {
			t.Error(ev.Reason, matches, trusted)
		}
	}
	ev.Namespace = "default"
	if matches, trusted := m.MatchesEvent(ev); !matches || !trusted {
		t.Error(matches, trusted)
	}
}

func TestChangesReportWhatIsWorthSaving(t *testing.T) {
	e := engineWith(t, crashLoop)
	before := e.Changes()
	only(t, e.Alert(crash(), trigger.Known{}, start))
	made := e.Changes()
	none(t, e.Alert(crash(), trigger.Known{}, after(1)))
	e.PodsOfAlert(crash("pod", "db-1"), start)
	if made == before || e.Changes() != made {
		t.Error(before, made, e.Changes())
	}
}
