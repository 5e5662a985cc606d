package trigger

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Pod is what the engine's caller knows about a pod.
type Pod struct {
	Namespace string
	Name      string
	UID       string
	Labels    map[string]string
	Node      string // node that it runs on; empty: unknown
	Container string // name of the container that was hit; empty: unknown
}

// problemMatcher is a compiled problemTemplate.
type problemMatcher struct {
	*v1alpha1.ProblemTemplate
	lowest   int             // lowest severity's rank
	selector labels.Selector // nil: any or no pod
}

func compileProblem(t *v1alpha1.ProblemTemplate, errs *Errors) *problemMatcher {
	const field = "spec.sourceTemplate.problemTemplate"
	m := &problemMatcher{ProblemTemplate: t, lowest: 1}
	if len(t.Rules)+len(t.Conditions)+len(t.Reasons)+len(t.Namespaces) == 0 && t.MinSeverity == "" && t.PodSelector == nil {
		errs.wrong(field, v1alpha1.ReasonInvalid, "is empty: set at least one field to select by")
	}
	if t.MinSeverity != "" {
		if m.lowest = problem.Severity(t.MinSeverity).Rank(); m.lowest == 0 {
			errs.wrong(field+".minSeverity", v1alpha1.ReasonInvalid, "%q: want one of info, warning, critical", t.MinSeverity)
		}
	}
	for _, ns := range t.Namespaces {
		if ns == "" || !validName(ns, false) {
			errs.wrong(field+".namespaces", v1alpha1.ReasonInvalid, "%q is not a namespace name", ns)
		}
	}
	if t.PodSelector != nil {
		var err error
		if m.selector, err = t.PodSelector.Selector(); err != nil {
			errs.wrong(field+".podSelector", v1alpha1.ReasonInvalid, "%s", err)
		}
	}
	return m
}

// matches reports whether the template matches the problem; the caller checks the severity. unknown
// means that it depends on a pod that isn't known.
func (m *problemMatcher) matches(p *problem.Problem, pod *Pod) (ok, unknown bool) {
	for _, c := range []struct {
		list []string
		have string
	}{{m.Rules, p.Rule}, {m.Conditions, p.Condition}, {m.Reasons, p.Reason}} {
		if len(c.list) > 0 && !slices.Contains(c.list, c.have) {
			return false, false
		}
	}
	if len(m.Namespaces) == 0 && m.selector == nil {
		return true, false
	}
	switch {
	case podOf(p) == "":
		return false, false
	case pod == nil:
		return false, true
	}
	ok = len(m.Namespaces) == 0 || slices.Contains(m.Namespaces, pod.Namespace)
	return ok && (m.selector == nil || m.selector.Matches(labels.Set(pod.Labels))), false
}

// podOf returns the UID of the pod that a problem is about, or "". A problem without a group is
// about the whole node, wherever it was seen last.
func podOf(p *problem.Problem) string {
	if p.Group == "" {
		return ""
	}
	return p.Pod
}

// subjectOf returns the subject of a problem, for the cooldown: the pod, or else the subject that
// the detector names. If only a log or a check reports the problem, the subject is the problem
// itself, because anybody can write names there.
func subjectOf(p *problem.Problem, node string) string {
	ev := principal(p)
	switch {
	case podOf(p) != "":
		return "pod " + p.Pod
	case p.Group == "", p.Subject == "", ev == nil, ev.Kind == event.Log, ev.Kind == event.Check:
		return "node " + node + " rule " + p.Rule + " " + p.Group
	}
	return "node " + node + " " + p.Subject
}

// principal returns the most informative event of a problem: the latest that is neither a log line
// nor a check, or else the latest.
func principal(p *problem.Problem) *event.Event {
	for _, ev := range slices.Backward(p.Evidence) {
		if ev != nil && ev.Kind != event.Log && ev.Kind != event.Check {
			return ev
		}
	}
	if n := len(p.Evidence); n > 0 {
		return p.Evidence[n-1]
	}
	return nil
}

// Problem returns the Diagnoses wanted because of a problem's transition. pod is the one that
// Problem.Pod names, or nil if it isn't known (any more). Look the pod up before the call: if
// Diagnoses are missed because the pod is unknown, they are not created later.
//
// Diagnoses start only at the beginning of an episode, or when its severity rises to a trigger's
// minSeverity. A problem that is muted, or suppressed by its cause, begins when that is over.
func (e *Engine) Problem(p *problem.Problem, pod *Pod, now time.Time) []*v1alpha1.Diagnosis {
	if p.State != problem.Firing || p.FirstSeen.IsZero() {
		return nil
	}
	if pod != nil && (podOf(p) == "" || !usable(pod)) {
		pod = nil
	}
	high := max(p.Severity.Rank(), 1)
	key := idOf(string(SourceProblem), p.Rule, p.Group)
	s, known := e.streams.Get(key)
	switch {
	case known && e.over(&s, p.FirstSeen):
		return nil
	case !known || !p.FirstSeen.Equal(s.Episode):
		s = stream{ID: key, Episode: p.FirstSeen.Round(0).UTC()}
	}
	hidden := ""
	switch {
	case !p.MutedUntil.IsZero():
		hidden = WithheldMuted
	case p.SuppressedBy != "":
		hidden = WithheldSuppressed
	}
	if high <= s.Rank || hidden != "" && s.Hidden {
		return nil
	}
	low := s.Rank
	if hidden == "" {
		s.Rank = high
	} else {
		s.Hidden = true
	}
	e.streams.Add(key, s)
	e.changes++
	var wanted []*v1alpha1.Diagnosis
	for _, m := range e.matchers {
		if m.problem == nil || m.problem.lowest <= low || m.problem.lowest > high {
			continue
		}
		ok, unknown := m.problem.matches(p, pod)
		switch {
		case unknown:
			e.withhold(m, WithheldUnknownPod)
		case !ok:
		case hidden != "":
			e.withhold(m, hidden)
		default:
			wanted = e.decide(wanted, e.ofProblem(m, p, pod), Known{}, now)
		}
	}
	return wanted
}

// usable reports whether a pod has valid names.
func usable(p *Pod) bool {
	return p.Namespace != "" && p.Name != "" && validName(p.Namespace, false) && validName(p.Name, true) &&
		validName(p.Container, false) && validName(p.Node, true)
}

// ofProblem returns the occurrence of a problem.
func (e *Engine) ofProblem(m *Matcher, p *problem.Problem, pod *Pod) *occurrence {
	o := &occurrence{
		matcher: m, subject: subjectOf(p, e.cfg.Node), hint: e.cfg.Node, episode: p.FirstSeen, cooldown: true,
		cause: "problem of rule " + p.Rule + " (" + p.Reason + ", " + string(p.Severity) + "): " + p.Message,
		about: p.Subject, target: target{node: e.cfg.Node}, podUID: podOf(p),
	}
	if o.about == "" || p.Group == "" {
		o.about = "node " + e.cfg.Node
	}
	o.parameters, o.omitted = problemParameters(p, e.cfg.Node, pod)
	if pod != nil {
		o.about = pod.Namespace + "/" + pod.Name
		o.target.pod = &v1alpha1.PodReference{Namespace: pod.Namespace, Name: pod.Name, Container: o.parameters["container"]}
	}
	return o
}
