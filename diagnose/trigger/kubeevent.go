package trigger

import (
	"cmp"
	"regexp"
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
	source := r.Source
	if source == nil {
		source = &v1alpha1.EventSourceRegexp{}
	}
	if r.Name == "" && r.Namespace == "" && r.Reason == "" && r.Message == "" && *source == (v1alpha1.EventSourceRegexp{}) {
		errs.wrong(field, v1alpha1.ReasonInvalid, "says nothing to match by")
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

// believes reports whether what an Event says of itself may choose a node: those of a namespace
// can be written by whoever may create Events there, in anybody's name. A Trigger that names
// namespaces says whom it believes; those of the cluster itself are believed.
func (m *eventMatcher) believes(ev *corev1.Event) bool {
	return m != nil && m.namespace != nil || ev.Namespace == corev1.NamespaceDefault || ev.Namespace == metav1.NamespaceSystem
}

// component returns who reported the Event: those made by events.k8s.io have no source.
func component(ev *corev1.Event) string { return cmp.Or(ev.Source.Component, ev.ReportingController) }

// agentComponent is the component of the Events of agents; the chart's policies let each agent
// use it for its own node alone.
const agentComponent = "kernosis"

// maxEventAge is how long ago an Event may have happened: a controller lists those of the
// last hour when it starts, and a new leader is there within this.
const maxEventAge = 10 * time.Minute

// KubeEvent returns what is wanted because of an Event of the cluster, new or changed. An
// Event that goes on counting is decided about once. known has the pod of
// [Engine.PodsOfEvent]: its node is believed before what the Event says, which whoever may
// write Events in a namespace has made up.
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
		case now.Sub(last) > maxEventAge: // it may yet happen again
			e.withhold(m, WithheldOld)
		case first.Sub(now) > maxAhead:
			e.withhold(m, WithheldFuture)
		case e.begins(key, first):
			wanted = e.decide(wanted, ofEvent(m, ev, known, first), known, now)
		}
	}
	return wanted
}

// PodsOfEvent returns the pod that a decision about an Event asks for, as
// [Engine.PodsOfAlert] does.
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

// MatchesEvent reports whether the Trigger is about an Event. Unlike the engine's methods
// it may be called by several goroutines.
func (m *Matcher) MatchesEvent(ev *corev1.Event) bool { return m.event != nil && m.event.matches(ev) }

// eventTimes returns when the object was made, which is when its episode began, and when
// the Event last happened. An Event that is made anew after its time to live has the
// earlier one's firstTimestamp.
func eventTimes(ev *corev1.Event, now time.Time) (first, last time.Time) {
	made, reported, begun := ev.CreationTimestamp.Time, ev.EventTime.Time, ev.FirstTimestamp.Time
	switch {
	case !made.IsZero():
		first = made
	case !reported.IsZero():
		first = reported
	case !begun.IsZero():
		first = begun
	default:
		first = now
	}
	last = first
	times := []time.Time{ev.LastTimestamp.Time, reported, begun}
	if ev.Series != nil {
		times = append(times, ev.Series.LastObservedTime.Time)
	}
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return first, last
}

// ofEvent is what a Diagnosis of an Event is made of.
func ofEvent(m *Matcher, ev *corev1.Event, known Known, first time.Time) *occurrence {
	of := &ev.InvolvedObject
	about := of.Kind + " " + of.Name
	if of.Namespace != "" {
		about = of.Kind + " " + of.Namespace + "/" + of.Name
	}
	o := &occurrence{
		matcher: m, subject: "object " + about + " " + string(of.UID), hint: of.Name, episode: first, cooldown: true, about: about,
		cause: "Event " + ev.Namespace + "/" + ev.Name + " of " + component(ev) + " about " + about + ", " + ev.Reason + ": " + ev.Message,
	}
	p := &parameters{values: v1alpha1.Parameters{}}
	core := of.APIVersion == "" || of.APIVersion == "v1"
	switch {
	case core && of.Kind == "Node":
		// Components disagree on what a Node's UID is.
		o.subject, o.target.node = "node "+of.Name, of.Name
	case core && of.Kind == "Pod" && of.Namespace != "" && of.Name != "":
		pod := Pod{Namespace: of.Namespace, Name: of.Name, UID: string(of.UID), Node: ev.Source.Host, Container: ContainerOf(of.FieldPath)}
		there, gone := known.pod(pod.Namespace, pod.Name)
		same := there != nil && (there.UID == "" || of.UID == "" || there.UID == pod.UID)
		switch {
		case same && there.Node != "":
			// Whoever has a node's agent can report pods of other nodes, though as that node's
			// agent alone. Controllers are anywhere.
			o.elsewhere = component(ev) == agentComponent && pod.Node != there.Node
			pod.Node, pod.UID = there.Node, cmp.Or(pod.UID, there.UID)
		case m.event.believes(ev):
			// What has ended on a node that the Event names can still be looked into.
			o.podGone = gone && pod.Node == ""
		default: // node and UID may be made up
			o.podGone = gone || there != nil && !same
			if there != nil {
				pod.Node = ""
			}
		}
		o.target = target{node: pod.Node, pod: &v1alpha1.PodReference{Namespace: pod.Namespace, Name: pod.Name, Container: pod.Container}}
		o.about = pod.Namespace + "/" + pod.Name
		p.pod(&pod)
	case m.event.believes(ev):
		o.target.node = ev.Source.Host
	}
	p.exact("node", o.target.node)
	p.text("reason", ev.Reason)
	p.text("message", ev.Message)
	p.text("subject", about)
	o.parameters, o.omitted = p.values, p.omitted
	return o
}

// ContainerOf returns the container that a field path names, as spec.containers{app}.
func ContainerOf(path string) string {
	kind, rest, ok := strings.Cut(path, "{")
	name, closed := strings.CutSuffix(rest, "}")
	if !ok || !closed || !strings.HasPrefix(kind, "spec.") || !strings.HasSuffix(strings.ToLower(kind), "containers") {
		return ""
	}
	return name
}
