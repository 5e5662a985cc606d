package trigger

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Alert is an alert of Prometheus, sent directly or through Alertmanager.
type Alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"` // zero: not given
	EndsAt       time.Time         `json:"endsAt"`   // zero: not given
	GeneratorURL string            `json:"generatorURL"`
	Over         bool              `json:"-"` // its sender says that it is resolved
}

// Name returns the alert's name.
func (a *Alert) Name() string { return a.Labels[model.AlertNameLabel] }

// Fingerprint returns the fingerprint that Alertmanager uses for the alert.
func (a *Alert) Fingerprint() string {
	set := make(model.LabelSet, len(a.Labels))
	for n, v := range a.Labels {
		set[model.LabelName(n)] = model.LabelValue(v)
	}
	return set.Fingerprint().String()
}

// resolved reports whether the alert has ended.
func (a *Alert) resolved(now time.Time) bool {
	return a.Over || !a.EndsAt.IsZero() && !a.EndsAt.After(now)
}

// identity identifies an alert by its labels. Unlike the fingerprint it can't be made to collide.
func (a *Alert) identity() string {
	var b strings.Builder
	for _, n := range slices.Sorted(maps.Keys(a.Labels)) {
		b.WriteString(strconv.Quote(n))
		b.WriteString(strconv.Quote(a.Labels[n]))
	}
	return b.String()
}

// alertMatcher is a compiled prometheusAlertTemplate.
type alertMatcher struct {
	name, startsAt, endsAt, generatorURL *regexp.Regexp
	labels, annotations                  []namedRegexp

	node, podNamespace, podName, container string // names of labels; empty: none
	inject                                 []string
}

func compileAlert(t *v1alpha1.PrometheusAlertTemplate, errs *Errors) *alertMatcher {
	const field = "spec.sourceTemplate.prometheusAlertTemplate"
	r := &t.Regexp
	m := &alertMatcher{
		name:         compileRegexp(r.AlertName, field+".regexp.alertName", errs),
		labels:       compileRegexps(r.Labels, field+".regexp.labels", errs),
		annotations:  compileRegexps(r.Annotations, field+".regexp.annotations", errs),
		startsAt:     compileRegexp(r.StartsAt, field+".regexp.startsAt", errs),
		endsAt:       compileRegexp(r.EndsAt, field+".regexp.endsAt", errs),
		generatorURL: compileRegexp(r.GeneratorURL, field+".regexp.generatorURL", errs),
		node:         string(t.NodeNameReferenceLabel), podNamespace: string(t.PodNamespaceReferenceLabel),
		podName: string(t.PodNameReferenceLabel), container: string(t.ContainerReferenceLabel),
	}
	if r.AlertName == "" && r.StartsAt == "" && r.EndsAt == "" && r.GeneratorURL == "" && len(r.Labels)+len(r.Annotations) == 0 {
		errs.wrong(field+".regexp", v1alpha1.ReasonInvalid, "is empty: set at least one field to match by")
	}
	for _, l := range []struct{ name, label string }{
		{"nodeNameReferenceLabel", m.node}, {"podNamespaceReferenceLabel", m.podNamespace},
		{"podNameReferenceLabel", m.podName}, {"containerReferenceLabel", m.container},
	} {
		if l.label != "" {
			checkLabel(l.label, field+"."+l.name, errs)
		}
	}
	for i, l := range t.ParameterInjectionLabels {
		checkLabel(string(l), field+".parameterInjectionLabels["+strconv.Itoa(i)+"]", errs)
		m.inject = append(m.inject, string(l))
	}
	if (m.podName == "") != (m.podNamespace == "") {
		errs.wrong(field+".podNamespaceReferenceLabel", v1alpha1.ReasonInvalid, "set both podNameReferenceLabel and podNamespaceReferenceLabel, or neither")
	}
	if m.container != "" && m.podName == "" {
		errs.wrong(field+".containerReferenceLabel", v1alpha1.ReasonInvalid, "requires podNameReferenceLabel")
	}
	return m
}

func checkLabel(label, field string, errs *Errors) {
	if !model.LegacyValidation.IsValidLabelName(label) || len(label) > 128 {
		errs.wrong(field, v1alpha1.ReasonInvalid, "%q is not a label name", label)
	}
}

func (m *alertMatcher) matches(a *Alert) bool {
	return matches(m.name, a.Name()) && matchesAll(m.labels, a.Labels) && matchesAll(m.annotations, a.Annotations) &&
		matchesTime(m.startsAt, a.StartsAt) && matchesTime(m.endsAt, a.EndsAt) && matches(m.generatorURL, a.GeneratorURL)
}

// matchesTime tries both formats that a Trigger may be written for: RFC 3339, and KubeDiag's,
// "2026-01-02 15:04:05 +0000 UTC".
func matchesTime(re *regexp.Regexp, t time.Time) bool {
	return re == nil || re.MatchString(t.Format(time.RFC3339Nano)) || re.MatchString(t.String())
}

// maxAhead is how far another machine's clock may be ahead of ours. An alert that began later would
// hide the next ones.
const maxAhead = 5 * time.Minute

// Alert returns the Diagnoses wanted because of an alert. The engine decides once on an alert that
// is sent repeatedly; it recognizes the alert by its labels and start. Without a start, each alert
// counts as new. known has the pods of [Engine.PodsOfAlert].
func (e *Engine) Alert(a *Alert, known Known, now time.Time) []*v1alpha1.Diagnosis {
	if a.resolved(now) || len(a.Labels) == 0 {
		return nil
	}
	episode, identity := a.began(now), sync.OnceValue(a.identity)
	var wanted []*v1alpha1.Diagnosis
	for _, m := range e.matchers {
		if m.alert == nil || !m.alert.matches(a) {
			continue
		}
		if episode.Sub(now) > maxAhead {
			e.withhold(m, WithheldFuture)
			continue
		}
		if e.begins(idOf(string(SourceAlert), m.name, identity()), episode) {
			wanted = e.decide(wanted, ofAlert(m, a, identity(), episode, known), known, now)
		}
	}
	return wanted
}

// began returns when the alert's episode began.
func (a *Alert) began(now time.Time) time.Time {
	if a.StartsAt.IsZero() {
		return now
	}
	return a.StartsAt
}

// PodsOfAlert returns the pods that a decision on an alert needs. It changes nothing. There are
// none if the alert is already decided on, or is withheld regardless of pods.
func (e *Engine) PodsOfAlert(a *Alert, now time.Time) []types.NamespacedName {
	if a.resolved(now) || len(a.Labels) == 0 || a.began(now).Sub(now) > maxAhead {
		return nil
	}
	var asked []types.NamespacedName
	identity := sync.OnceValue(a.identity)
	for _, m := range e.matchers {
		if m.alert == nil || m.alert.podName == "" || !m.alert.matches(a) {
			continue
		}
		key := idOf(string(SourceAlert), m.name, identity())
		if s, seen := e.streams.Peek(key); seen && (a.began(now).Equal(s.Episode) || e.over(&s, a.began(now))) {
			continue
		}
		asked = e.ask(asked, ofAlert(m, a, identity(), a.began(now), Known{}), now)
	}
	return asked
}

// Reported is an alert's report on the Diagnosis that was made for it.
type Reported struct {
	Diagnosis string // its name
	Gone      bool   // the alert has ended; otherwise it lasts
	Since     time.Time
}

// Reported returns what an alert, firing or resolved, reports on the Diagnoses that were made for
// its episode. It changes nothing.
func (e *Engine) Reported(a *Alert, now time.Time) []Reported {
	if len(a.Labels) == 0 {
		return nil
	}
	gone := a.resolved(now)
	var out []Reported
	subject := sync.OnceValue(func() string { return alertSubject(a.identity()) })
	for _, m := range e.matchers {
		if m.alert == nil {
			continue
		}
		o := &occurrence{matcher: m, subject: subject()}
		made, known := e.subjects.Peek(o.key())
		// Of two Prometheus servers, the first to detect the alert may report it last. A later
		// start is another episode, and so is an earlier end.
		if !known || a.StartsAt.After(made.Episode) || gone && !a.EndsAt.IsZero() && a.EndsAt.Before(made.Episode) {
			continue
		}
		t := Reported{Diagnosis: diagnosisName(m.name, m.source, subject(), "", made.Episode), Gone: gone, Since: made.Episode}
		if gone {
			t.Since = now
			if !a.EndsAt.IsZero() && a.EndsAt.Before(now) {
				t.Since = a.EndsAt
			}
		}
		out = append(out, t)
	}
	return out
}

// alertSubject returns the subject of an alert, which cooldown applies to.
func alertSubject(identity string) string { return "alert " + identity }

// ofAlert returns the occurrence of an alert.
func ofAlert(m *Matcher, a *Alert, identity string, episode time.Time, known Known) *occurrence {
	t := m.alert
	o := &occurrence{
		matcher: m, subject: alertSubject(identity), episode: episode, cooldown: true,
		cause: "alert " + a.Name() + " with fingerprint " + a.Fingerprint() + ": " + labelText(a.Labels),
		about: "alert " + a.Name(), target: target{node: a.Labels[t.node]},
	}
	p := &parameters{values: v1alpha1.Parameters{}}
	// A pod needs both namespace and name.
	if ns, name := a.Labels[t.podNamespace], a.Labels[t.podName]; t.podName != "" && ns != "" && name != "" {
		pod := Pod{Namespace: ns, Name: name, Container: a.Labels[t.container]}
		o.target.pod = &v1alpha1.PodReference{Namespace: ns, Name: name, Container: pod.Container}
		o.about = ns + "/" + name
		there, gone := known.pod(ns, name)
		if there != nil {
			// The node label may be that of an exporter on another node.
			pod.UID, o.target.node = there.UID, cmp.Or(there.Node, o.target.node)
		}
		o.podGone = gone
		p.pod(&pod)
	}
	p.exact("node", o.target.node)
	for _, label := range t.inject {
		value, ok := a.Labels[label]
		if !ok {
			continue
		}
		delete(p.values, label)
		p.exact(label, value)
	}
	o.parameters, o.omitted = p.values, p.omitted
	return o
}

// labelText formats labels as Prometheus does.
func labelText(labels map[string]string) string {
	var parts []string
	for _, n := range slices.Sorted(maps.Keys(labels)) {
		if n != model.AlertNameLabel {
			parts = append(parts, n+"="+strconv.Quote(labels[n]))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
