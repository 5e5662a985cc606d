package trigger

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// eventMatcher is a compiled kubernetesEventTemplate.
type eventMatcher struct{ name, namespace, reason, message, component, host *regexp.Regexp }

func compileEvent(t *v1alpha1.KubernetesEventTemplate, errs *Errors) *eventMatcher {
	const field = "spec.sourceTemplate.kubernetesEventTemplate.regexp"
	r := &t.Regexp
	source := cmp.Or(r.Source, &v1alpha1.EventSourceRegexp{})
	if r.Name == "" && r.Namespace == "" && r.Reason == "" && r.Message == "" && *source == (v1alpha1.EventSourceRegexp{}) {
		errs.wrong(field, v1alpha1.ReasonInvalid, "is empty: set at least one field to match by")
	}
	return &eventMatcher{
		name: compileRegexp(r.Name, field+".name", errs), namespace: compileRegexp(r.Namespace, field+".namespace", errs),
		reason: compileRegexp(r.Reason, field+".reason", errs), message: compileRegexp(r.Message, field+".message", errs),
		component: compileRegexp(source.Component, field+".source.component", errs),
		host:      compileRegexp(source.Host, field+".source.host", errs),
	}
}

func (m *eventMatcher) matches(ev *corev1.Event) bool {
	return matches(m.name, ev.Name) && matches(m.namespace, ev.Namespace) && matches(m.reason, ev.Reason) &&
		matches(m.message, ev.Message) && matches(m.component, component(ev)) && matches(m.host, ev.Source.Host)
}

// believes reports whether the contents of an Event are trusted to choose a node, or a pod of another
// namespace. A user who may create Events in a namespace can write them in anybody's name, about any
// object. A Trigger that matches namespaces thereby says which it trusts; the cluster's own
// namespaces are trusted.
func (m *eventMatcher) believes(ev *corev1.Event) bool {
	return m != nil && m.namespace != nil || ev.Namespace == corev1.NamespaceDefault || ev.Namespace == metav1.NamespaceSystem
}

// component returns the reporter of the Event: Events created through events.k8s.io have no source.
func component(ev *corev1.Event) string { return cmp.Or(ev.Source.Component, ev.ReportingController) }

// agentComponent is the component of agents' Events. The chart's admission policies let each agent
// use it only for its own node.
const agentComponent = "kernosis"

// maxEventAge is how long ago an Event may have happened: a starting controller lists those of the
// last hour, and a new leader takes over within this time.
const maxEventAge = 10 * time.Minute

// KubeEvent returns the Diagnoses wanted because of a new or changed Event of the cluster. The engine
// decides once on an Event, even if its count grows. known has the pod of [Engine.PodsOfEvent]. The
// node comes from the pod rather than from the Event, because anybody who may write Events in a
// namespace can make up that field. If the pod was not looked up, such an Event names no node.
func (e *Engine) KubeEvent(ev *corev1.Event, known Known, now time.Time) []*v1alpha1.Diagnosis {
	var wanted []*v1alpha1.Diagnosis
	for _, m := range e.matchers {
		if m.event == nil || !m.event.matches(ev) {
			continue
		}
		first, last := eventTimes(ev, now)
		key := idOf(string(SourceEvent), m.name, ev.Namespace, ev.Name, string(ev.UID))
		if s, seen := e.streams.Get(key); seen && !first.After(s.Episode) {
			continue
		}
		switch {
		case now.Sub(last) > maxEventAge: // it may happen again
			e.withhold(m, WithheldOld)
		case first.Sub(now) > maxAhead:
			e.withhold(m, WithheldFuture)
		case e.begins(key, first):
			wanted = e.decide(wanted, ofEvent(m, ev, known, first), known, now)
		}
	}
	return wanted
}

// PodsOfEvent returns the pod that a decision on an Event needs, as [Engine.PodsOfAlert] does.
func (e *Engine) PodsOfEvent(ev *corev1.Event, now time.Time) []types.NamespacedName {
	var asked []types.NamespacedName
	for _, m := range e.matchers {
		if m.event == nil || !m.event.matches(ev) {
			continue
		}
		first, last := eventTimes(ev, now)
		s, seen := e.streams.Peek(idOf(string(SourceEvent), m.name, ev.Namespace, ev.Name, string(ev.UID)))
		if seen && !first.After(s.Episode) || now.Sub(last) > maxEventAge || first.Sub(now) > maxAhead {
			continue
		}
		asked = e.ask(asked, ofEvent(m, ev, Known{}, first), now)
	}
	return asked
}

// MatchesEvent reports whether the Trigger matches an Event, and whether it then trusts the Event's
// namespace. Unlike the engine's methods, it is safe for concurrent use.
func (m *Matcher) MatchesEvent(ev *corev1.Event) (matches, trusted bool) {
	matches = m.event != nil && m.event.matches(ev)
	return matches, matches && m.event.believes(ev)
}

// Crowded reports whether Events of untrusted namespaces have used their share of a limit: half of it
// for each namespace, three quarters for all, but at least one.
func Crowded(limit, ofNamespace, ofAll int) bool {
	return ofNamespace >= max(limit/2, 1) || ofAll >= max(3*limit/4, 1)
}

// eventTimes returns when the Event object was created, which is when its episode began, and when
// the Event last happened. An Event recreated after its TTL keeps the earlier one's firstTimestamp.
func eventTimes(ev *corev1.Event, now time.Time) (first, last time.Time) {
	made, reported, begun := ev.CreationTimestamp.Time, ev.EventTime.Time, ev.FirstTimestamp.Time
	first = cmp.Or(made, reported, begun, now)
	times := []time.Time{first, ev.LastTimestamp.Time, reported, begun}
	if ev.Series != nil {
		times = append(times, ev.Series.LastObservedTime.Time)
	}
	return first, slices.MaxFunc(times, time.Time.Compare)
}

// ofEvent returns the occurrence of an Event.
func ofEvent(m *Matcher, ev *corev1.Event, known Known, first time.Time) *occurrence {
	of := &ev.InvolvedObject
	about := of.Kind + " " + of.Name
	if of.Namespace != "" {
		about = of.Kind + " " + of.Namespace + "/" + of.Name
	}
	object := "object " + about + " "
	o := &occurrence{
		matcher: m, subject: object + string(of.UID), hint: of.Name, episode: first, cooldown: true, about: about,
		cause: "Event " + ev.Namespace + "/" + ev.Name + " of " + component(ev) + " about " + about + ", " + ev.Reason + ": " + ev.Message,
	}
	p := &parameters{values: v1alpha1.Parameters{}}
	core, believed := of.APIVersion == "" || of.APIVersion == "v1", m.event.believes(ev)
	if !believed {
		o.tenant = ev.Namespace
	}
	switch {
	case core && of.Kind == "Node" && believed:
		// Components disagree on what a Node's UID is.
		o.subject, o.target.node = "node "+of.Name, of.Name
	case core && of.Kind == "Pod" && of.Namespace != "" && of.Name != "" && (believed || of.Namespace == ev.Namespace):
		pod := Pod{Namespace: of.Namespace, Name: of.Name, UID: string(of.UID), Node: ev.Source.Host, Container: ContainerOf(of.FieldPath)}
		there, gone := known.pod(pod.Namespace, pod.Name)
		same := there != nil && (there.UID == "" || of.UID == "" || there.UID == pod.UID)
		if same {
			o.subject = object + cmp.Or(there.UID, pod.UID) // the Event may have none
		}
		switch {
		case same && there.Node != "":
			// A compromised agent of a node can report pods of other nodes, but only as that node's
			// agent. Controllers may run anywhere.
			o.elsewhere = component(ev) == agentComponent && pod.Node != there.Node
			pod.Node, pod.UID = there.Node, cmp.Or(pod.UID, there.UID)
		case believed:
			// A pod that is gone can still be diagnosed on the node that the Event names.
			o.podGone = gone && pod.Node == ""
		default:
			// Node and UID may be made up, and the look-up may have failed. The controller looks the
			// pod up again to place the Diagnosis. No agent reports a pod that is on no node.
			o.podGone = gone || there != nil && !same
			o.elsewhere = component(ev) == agentComponent
			pod.Node, pod.UID = "", ""
			if same {
				pod.UID = there.UID
			}
		}
		o.target = target{node: pod.Node, pod: &v1alpha1.PodReference{Namespace: pod.Namespace, Name: pod.Name, Container: pod.Container}}
		o.about = pod.Namespace + "/" + pod.Name
		p.pod(&pod)
	case believed:
		o.target.node = ev.Source.Host
	}
	p.exact("node", o.target.node)
	p.text("reason", ev.Reason)
	p.text("message", ev.Message)
	p.text("subject", about)
	o.parameters, o.omitted = p.values, p.omitted
	return o
}

// ContainerOf returns the container that a field path like spec.containers{app} names, or "".
func ContainerOf(path string) string {
	kind, rest, ok := strings.Cut(path, "{")
	name, closed := strings.CutSuffix(rest, "}")
	if !ok || !closed || !strings.HasPrefix(kind, "spec.") || !strings.HasSuffix(strings.ToLower(kind), "containers") {
		return ""
	}
	return name
}
