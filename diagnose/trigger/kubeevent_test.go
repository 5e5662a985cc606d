package trigger_test

import (
	std "cmp"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

const failedMount = `{operationSet: s, cooldown: 0s, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: ^FailedMount$, source: {component: ^kubelet$}}}}}`

// mount returns an Event as kubelet creates it.
func mount(made time.Time) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "db-0.17a", Namespace: "shop", UID: types.UID("e-" + made.String()), CreationTimestamp: metav1.NewTime(made)},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "db-0", UID: types.UID(db.UID), FieldPath: "spec.containers{pg}"},
		Reason:         "FailedMount", Message: "MountVolume.SetUp failed for volume \"data\"\nrpc error", Type: "Warning",
		Source: corev1.EventSource{Component: "kubelet", Host: "n3"}, FirstTimestamp: metav1.NewTime(made), LastTimestamp: metav1.NewTime(made), Count: 1,
	}
}

func TestWhichEventsAreChosen(t *testing.T) {
	for regexp, want := range map[string]bool{
		`reason: Mount`:                     true, // anywhere in the text
		`reason: ^Mount`:                    false,
		`reason: ^failedmount$`:             false,
		`reason: "(?i)^failedmount$"`:       true,
		`name: db-0`:                        true,
		`name: web`:                         false,
		`namespace: ^shop$`:                 true,
		`namespace: ^default$`:              false,
		`message: 'volume "data"'`:          true,
		`message: SetUp.*rpc`:               false, // a dot does not match a line break
		`message: "(?s)SetUp.*rpc"`:         true,
		`source: {component: kube}`:         true,
		`source: {host: n3}`:                true,
		`source: {host: n7}`:                false,
		`reason: Mount, source: {host: n7}`: false,
	} {
		e := engineWith(t, `{operationSet: s, sourceTemplate: {kubernetesEventTemplate: {regexp: {`+regexp+`}}}}`)
		if got := e.KubeEvent(mount(start), trigger.Known{}, start); (len(got) == 1) != want {
			t.Errorf("%s: %v", regexp, names(got))
		}
	}
	// Events of events.k8s.io have no source, but a reporting controller.
	ev := mount(start)
	ev.Source, ev.ReportingController = corev1.EventSource{}, "kubelet"
	only(t, engineWith(t, failedMount).KubeEvent(ev, trigger.Known{}, start))
}

// An Event that is reported again is the same one; a recreated one is new.
func TestEventThatGoesOn(t *testing.T) {
	matchers := matchersOf(t, failedMount)
	e := engineOf(t, matchers...)
	ev := mount(start)
	first := only(t, e.KubeEvent(ev, trigger.Known{}, start))
	for i := range 100 {
		ev.Count++
		ev.LastTimestamp = metav1.NewTime(after(time.Duration(i) * time.Minute))
		none(t, e.KubeEvent(ev, trigger.Known{}, ev.LastTimestamp.Time))
	}
	e = restarted(t, e, matchers)
	none(t, e.KubeEvent(ev, trigger.Known{}, ev.LastTimestamp.Time))
	if again := only(t, engineOf(t, matchers...).KubeEvent(ev, trigger.Known{}, ev.LastTimestamp.Time)); again.Name != first.Name {
		t.Error(again.Name, first.Name)
	}
	anew := mount(after(24 * time.Hour))
	anew.FirstTimestamp = metav1.NewTime(start) // client-go keeps its own firstTimestamp
	second := only(t, e.KubeEvent(anew, trigger.Known{}, after(24*time.Hour)))
	if first.Name == second.Name {
		t.Error(first.Name)
	}
	// An older Event of the same pod that arrives late is a separate one.
	late := mount(after(23*time.Hour + 55*time.Minute))
	only(t, e.KubeEvent(late, trigger.Known{}, after(24*time.Hour)))
	none(t, e.KubeEvent(anew, trigger.Known{}, after(24*time.Hour)))
}

// A starting controller receives the Events of the last hour.
func TestEventsOfLongAgo(t *testing.T) {
	e := engineWith(t, failedMount)
	none(t, e.KubeEvent(mount(start), trigger.Known{}, after(11*time.Minute)))
	counts(t, e, "t0", 0, map[string]uint64{trigger.WithheldOld: 1})
	again := mount(start)
	again.LastTimestamp = metav1.NewTime(after(20 * time.Minute)) // it happens again
	only(t, e.KubeEvent(again, trigger.Known{}, after(21*time.Minute)))
	series := mount(after(time.Second))
	series.Name = "of-a-series"
	series.Series = &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(after(20 * time.Minute))}
	only(t, e.KubeEvent(series, trigger.Known{}, after(21*time.Minute)))
	none(t, e.KubeEvent(mount(after(time.Hour)), trigger.Known{}, after(21*time.Minute)))
	counts(t, e, "t0", 2, map[string]uint64{trigger.WithheldOld: 1, trigger.WithheldFuture: 1})
}

func TestWhatADiagnosisOfAnEventSays(t *testing.T) {
	e := engineWith(t, failedMount)
	dx := only(t, e.KubeEvent(mount(start), podsOf(&trigger.Pod{Namespace: "shop", Name: "db-0", UID: db.UID, Node: "n4"}), start))
	want := v1alpha1.DiagnosisSpec{
		OperationSet: "s", NodeName: "n4", PodReference: &v1alpha1.PodReference{Namespace: "shop", Name: "db-0", Container: "pg"},
		Parameters: v1alpha1.Parameters{
			"node": "n4", "podNamespace": "shop", "podName": "db-0", "podUID": db.UID, "container": "pg", "reason": "FailedMount",
			"message": `MountVolume.SetUp failed for volume "data"\nrpc error`, "subject": "Pod shop/db-0",
		},
	}
	want.TTL.Duration = v1alpha1.DefaultTTL
	if diff := cmp.Diff(want, dx.Spec); diff != "" {
		t.Error(diff)
	}
	if got := dx.Annotations[trigger.AnnotationTriggeredBy]; got != `Event shop/db-0.17a of kubelet about Pod shop/db-0, FailedMount: MountVolume.SetUp failed for volume "data"\nrpc error` {
		t.Error(got)
	}
}

func TestTargetsOfEvents(t *testing.T) {
	for name, test := range map[string]struct {
		of           corev1.ObjectReference
		host, preset string
		in           string // namespace of the Event
		node, pod    string
		why          string
	}{
		"a node": {of: corev1.ObjectReference{Kind: "Node", Name: "n9", UID: "n9"}, host: "n3", in: "default", node: "n9"},
		"a node that a user of a namespace names":   {of: corev1.ObjectReference{Kind: "Node", Name: "n9", UID: "n9"}, host: "n3", why: trigger.WithheldNoTarget},
		"a node, in that user's own namespace":      {of: corev1.ObjectReference{Kind: "Node", Namespace: "shop", Name: "n9"}, why: trigger.WithheldNoTarget},
		"another user's pod":                        {of: corev1.ObjectReference{Kind: "Pod", Namespace: "bank", Name: "web-1"}, host: "n3", why: trigger.WithheldNoTarget},
		"another namespace's pod, by the cluster's": {of: corev1.ObjectReference{Kind: "Pod", Namespace: "bank", Name: "web-1"}, host: "n3", in: "kube-system", node: "n3", pod: "bank/web-1"},
		"a node of another API":                     {of: corev1.ObjectReference{APIVersion: "x.io/v1", Kind: "Node", Name: "n9"}, host: "n3", in: "default", node: "n3"},
		"a host that a user of a namespace names":   {of: corev1.ObjectReference{Kind: "ReplicaSet", Namespace: "shop", Name: "web"}, host: "n3", why: trigger.WithheldNoTarget},
		"a pod":                  {of: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-1"}, host: "n3", pod: "shop/web-1"},
		"a pod, by a controller": {of: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-1"}, pod: "shop/web-1"},
		"something else":         {of: corev1.ObjectReference{Kind: "ReplicaSet", Namespace: "kube-system", Name: "web"}, host: "n3", in: "kube-system", node: "n3"},
		"nothing":                {of: corev1.ObjectReference{Kind: "ReplicaSet", Namespace: "shop", Name: "web"}, why: trigger.WithheldNoTarget},
		"the trigger's node":     {of: corev1.ObjectReference{Kind: "ReplicaSet", Namespace: "shop", Name: "web"}, preset: "n1", node: "n1"},
		"a host that is none":    {of: corev1.ObjectReference{Kind: "ReplicaSet"}, host: "n3/../x", in: "default", why: trigger.WithheldInvalidTarget},
		"a pod that is none":     {of: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "Web 1"}, host: "n3", why: trigger.WithheldInvalidTarget},
	} {
		t.Run(name, func(t *testing.T) {
			spec := `{operationSet: s, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: Mount}}}}`
			if test.preset != "" {
				spec = `{nodeName: ` + test.preset + `, ` + spec[1:]
			}
			e := engineWith(t, spec)
			ev := mount(start)
			ev.InvolvedObject, ev.Source.Host, ev.Namespace = test.of, test.host, std.Or(test.in, ev.Namespace)
			got := e.KubeEvent(ev, trigger.Known{}, start)
			if test.why != "" {
				none(t, got)
				none(t, e.KubeEvent(ev, trigger.Known{}, start)) // counted once
				counts(t, e, "t0", 0, map[string]uint64{test.why: 1})
				return
			}
			dx := only(t, got)
			pod := ""
			if r := dx.Spec.PodReference; r != nil {
				pod = r.Namespace + "/" + r.Name
			}
			if dx.Spec.NodeName != test.node || pod != test.pod || dx.Spec.Parameters["node"] != test.node {
				t.Errorf("%+v", dx.Spec)
			}
		})
	}
}

// Anybody who may create Events in a namespace controls their contents: reporter, node and pod.
// That can't start anything on a node of their choice, or about another pod's UID.
func TestWhatAnEventOfATenantCanStart(t *testing.T) {
	real := &trigger.Pod{Namespace: "shop", Name: "db-0", UID: db.UID, Node: "n4"}
	const believed = `{operationSet: s, cooldown: 0s, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: ^FailedMount$, namespace: ^shop$}}}}`
	const byAgents = `{operationSet: s, cooldown: 0s, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: ^FailedMount$, source: {component: ^kernosis$}}}}}`
	for name, test := range map[string]struct {
		spec, host, uid string
		known           trigger.Known
		node, why       string
	}{
		"as kubelet says it":                          {failedMount, "n4", db.UID, podsOf(real), "n4", ""},
		"another node in kubelet's name":              {failedMount, "n3", db.UID, podsOf(real), "n4", ""},
		"another node's agent tells of it":            {byAgents, "n3", db.UID, podsOf(real), "", trigger.WithheldInvalidTarget},
		"its node's agent tells of it":                {byAgents, "n4", db.UID, podsOf(real), "n4", ""},
		"another pod's UID":                           {failedMount, "n3", "of-another-pod", podsOf(real), "", trigger.WithheldUnknownPod},
		"another pod's UID, on the pod's own node":    {failedMount, "n4", "of-another-pod", podsOf(real), "", trigger.WithheldUnknownPod},
		"a pod that there is not":                     {failedMount, "n3", "of-another-pod", podsOf(), "", trigger.WithheldUnknownPod},
		"a pod that is on no node yet":                {failedMount, "n3", db.UID, podsOf(&trigger.Pod{Namespace: "shop", Name: "db-0", UID: db.UID}), "", ""},
		"one that has ended, in a namespace believed": {believed, "n3", "of-one-that-ended", podsOf(), "n3", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := engineWith(t, test.spec)
			ev := mount(start)
			ev.Source.Host, ev.InvolvedObject.UID = test.host, types.UID(test.uid)
			if test.spec == byAgents {
				ev.Source.Component = "kernosis"
			}
			made := e.KubeEvent(ev, test.known, start)
			if test.why != "" {
				none(t, made)
				counts(t, e, "t0", 0, map[string]uint64{test.why: 1})
				return
			}
			if dx := only(t, made); dx.Spec.NodeName != test.node {
				t.Errorf("on %q, want %q", dx.Spec.NodeName, test.node)
			}
		})
	}
}

// If the look-up of the pod fails, an Event that anybody may have written chooses neither node nor
// UID: the controller looks the pod up again to place the Diagnosis.
func TestEventsWhosePodCouldNotBeLookedUp(t *testing.T) {
	const believed = `{operationSet: s, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: ^FailedMount$, namespace: ^shop$}}}}`
	failed := trigger.Known{Pod: func(string, string) (*trigger.Pod, bool) { return nil, false }}
	for name, test := range map[string]struct {
		spec, component string
		known           trigger.Known
		node, uid, why  string
	}{
		"of a tenant":                    {failedMount, "kubelet", failed, "", "", ""},
		"of a tenant, names not checked": {failedMount, "kubelet", trigger.Known{}, "", "", ""},
		"in a namespace believed":        {believed, "kubelet", failed, "n3", db.UID, ""},
		"in an agent's name": {
			`{operationSet: s, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: ^FailedMount$}}}}`, "kernosis", failed, "", "", trigger.WithheldInvalidTarget,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := engineWith(t, test.spec)
			ev := mount(start)
			ev.Source.Component = test.component
			made := e.KubeEvent(ev, test.known, start)
			if test.why != "" {
				none(t, made)
				counts(t, e, "t0", 0, map[string]uint64{test.why: 1})
				return
			}
			dx := only(t, made)
			if dx.Spec.NodeName != test.node || dx.Spec.Parameters["node"] != test.node || dx.Spec.Parameters["podUID"] != test.uid || dx.Spec.PodReference.Name != "db-0" {
				t.Errorf("%+v", dx.Spec)
			}
		})
	}
}

// One user's Events can't use up a Trigger: the rest of its limit stays for other namespaces, and
// for the cluster's own.
func TestTenantsShareTheRateLimit(t *testing.T) {
	const spec = `{operationSet: s, cooldown: 0s, %s, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: ^FailedMount$%s}}}}`
	const eight = `rateLimit: {count: 8, within: 1h}`
	type step struct {
		in         string
		at         time.Duration
		send, want int
	}
	for name, test := range map[string]struct {
		spec  string
		steps []step
	}{
		"half each, three quarters together, the rest the cluster's": {fmt.Sprintf(spec, eight, ""), []step{
			{"shop", 0, 20, 4},
			{"bank", time.Minute, 20, 2},
			{"farm", 2 * time.Minute, 20, 0},
			{"default", 3 * time.Minute, 1, 1},
			{"kube-system", 4 * time.Minute, 20, 1},
			{"farm", time.Hour - 1, 1, 0},
			{"farm", time.Hour, 20, 4}, // the first four were an hour ago
			{"shop", time.Hour, 20, 0},
			{"shop", time.Hour + time.Minute, 20, 2},
		}},
		"the cluster's own may use all of it": {fmt.Sprintf(spec, eight, ""), []step{{"kube-system", 0, 20, 8}, {"shop", 0, 1, 0}}},
		"one at least":                        {fmt.Sprintf(spec, `rateLimit: {count: 1, within: 1h}`, ""), []step{{"shop", 0, 20, 1}, {"default", 0, 1, 0}}},
		"a namespace that the Trigger trusts": {fmt.Sprintf(spec, eight, ", namespace: ^shop$"), []step{{"shop", 0, 20, 8}}},
	} {
		t.Run(name, func(t *testing.T) {
			matchers := matchersOf(t, test.spec)
			e := engineOf(t, matchers...)
			var started, withheld uint64
			for i, s := range test.steps {
				made := 0
				for j := range s.send {
					ev := mount(after(s.at))
					ev.UID = types.UID(fmt.Sprintf("e-%d-%d", i, j))
					ev.Namespace, ev.InvolvedObject.Namespace = s.in, s.in
					ev.InvolvedObject.Name, ev.InvolvedObject.UID = fmt.Sprintf("db-%d", j), ev.UID
					asked := e.PodsOfEvent(ev, after(s.at))
					got := len(e.KubeEvent(ev, trigger.Known{}, after(s.at)))
					if len(asked) != got {
						t.Errorf("step %d: %d pods are looked up for %d Diagnoses", i, len(asked), got)
					}
					made += got
				}
				if made != s.want {
					t.Errorf("step %d, in %s: %d, want %d", i, s.in, made, s.want)
				}
				started, withheld = started+uint64(s.want), withheld+uint64(s.send-s.want)
				counts(t, e, "t0", started, map[string]uint64{trigger.WithheldRateLimit: withheld})
				if i == 1 {
					e, started, withheld = restarted(t, e, matchers), 0, 0
				}
			}
		})
	}
}

// The UID in an Event may be missing or made up: the pod's own counts.
func TestTheSubjectOfAnEventHasThePodsUID(t *testing.T) {
	e := engineWith(t, `{operationSet: s, cooldown: 10m, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: ^FailedMount$}}}}`)
	known := podsOf(&trigger.Pod{Namespace: "shop", Name: "db-0", UID: db.UID, Node: "n4"})
	first := mount(start)
	only(t, e.KubeEvent(first, known, start))
	second := mount(after(time.Minute))
	second.InvolvedObject.UID = ""
	none(t, e.KubeEvent(second, known, after(time.Minute)))
	counts(t, e, "t0", 1, map[string]uint64{trigger.WithheldCooldown: 1})
	if asked := e.PodsOfEvent(mount(after(2*time.Minute)), after(2*time.Minute)); asked != nil {
		t.Error("a pod is looked up during its cooldown", asked)
	}
	anew := podsOf(&trigger.Pod{Namespace: "shop", Name: "db-0", UID: "of-its-successor", Node: "n4"})
	third := mount(after(3 * time.Minute))
	third.InvolvedObject.UID = ""
	only(t, e.KubeEvent(third, anew, after(3*time.Minute)))
}
