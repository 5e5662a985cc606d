package trigger

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Defaults of the API for what a Trigger omits.
const (
	defaultCooldown = 10 * time.Minute
	defaultCount    = 20
	defaultWithin   = time.Hour
)

// maxParameters is how many parameters a Diagnosis may have.
const maxParameters = 64

// Source is the kind of thing that starts Diagnoses.
type Source string

// The sources.
const (
	SourceProblem Source = "problem"
	SourceAlert   Source = "alert"
	SourceEvent   Source = "event"
	SourceCron    Source = "cron"
)

// Matcher is a compiled Trigger. It is immutable and safe for concurrent use.
type Matcher struct {
	name     string
	spec     v1alpha1.TriggerSpec
	source   Source
	cooldown time.Duration
	count    int // the rate limit: at most count per within
	within   time.Duration
	warnings Errors

	problem *problemMatcher
	alert   *alertMatcher
	event   *eventMatcher
	cron    *schedule

	created       time.Time // of the Trigger; zero: not in a cluster
	lastScheduled time.Time // from its status
}

// Name returns the Trigger's name.
func (m *Matcher) Name() string { return m.name }

// Source returns what starts its Diagnoses.
func (m *Matcher) Source() Source { return m.source }

// Warnings returns settings that are valid but probably not intended.
func (m *Matcher) Warnings() Errors { return m.warnings }

// Compile compiles a Trigger for an [Engine]. The error is an [Errors] with all mistakes. The
// Trigger is not retained.
func Compile(t *v1alpha1.Trigger) (*Matcher, error) {
	m := &Matcher{name: t.Name, spec: *t.Spec.DeepCopy(), created: t.CreationTimestamp.Time}
	if t.Status.LastScheduleTime != nil {
		m.lastScheduled = t.Status.LastScheduleTime.Time
	}
	var errs Errors
	if t.Name == "" {
		errs.wrong("metadata.name", v1alpha1.ReasonInvalid, "is required")
	}
	for _, msg := range validation.IsValidLabelValue(t.Name) { // it becomes a label of the Diagnoses
		errs.wrong("metadata.name", v1alpha1.ReasonInvalid, "%q: %s", t.Name, msg)
	}
	if t.Spec.OperationSet == "" {
		errs.wrong("spec.operationSet", v1alpha1.ReasonInvalid, "is required")
	}
	if !validName(t.Spec.NodeName, true) {
		errs.wrong("spec.nodeName", v1alpha1.ReasonInvalid, "%q is not a node name", t.Spec.NodeName)
	}
	m.targets(&errs)
	m.bounds(&errs)
	m.template(&errs)
	m.parameters(&errs)
	if len(errs) > 0 {
		return nil, errs
	}
	return m, nil
}

// targets checks the selector that is used if the source names no target.
func (m *Matcher) targets(errs *Errors) {
	const field = "spec.targetSelector"
	t := m.spec.TargetSelector
	if t == nil {
		return
	}
	if m.spec.NodeName != "" {
		errs.wrong(field, v1alpha1.ReasonInvalid, "nodeName and targetSelector cannot both be set")
	}
	nodes, pods := t.NodeSelector != nil || len(t.NodeNames) > 0, t.PodSelector != nil || len(t.PodReferences) > 0
	if nodes == pods {
		errs.wrong(field, v1alpha1.ReasonInvalid, "must select either nodes or pods")
	}
	for _, s := range []struct {
		name     string
		selector *v1alpha1.LabelSelector
	}{{"nodeSelector", t.NodeSelector}, {"podSelector", t.PodSelector}} {
		if _, err := s.selector.Selector(); err != nil {
			errs.wrong(field+"."+s.name, v1alpha1.ReasonInvalid, "%s", err)
		}
	}
}

// bounds reads cooldown and rate limit, and checks them and the time to live.
func (m *Matcher) bounds(errs *Errors) {
	m.cooldown = cmp.Or(m.spec.Cooldown, &metav1.Duration{Duration: defaultCooldown}).Duration
	m.count = cmp.Or(int(m.spec.RateLimit.Count), defaultCount)
	m.within = cmp.Or(m.spec.RateLimit.Within.Duration, defaultWithin)
	const month = 720 * time.Hour
	if m.cooldown < 0 || m.cooldown > month {
		errs.wrong("spec.cooldown", v1alpha1.ReasonInvalid, "must be from 0s to 720h")
	}
	if m.count < 1 || m.count > maxCount {
		errs.wrong("spec.rateLimit.count", v1alpha1.ReasonInvalid, "must be from 1 to %d", maxCount)
	}
	if m.within < time.Second || m.within > month {
		errs.wrong("spec.rateLimit.within", v1alpha1.ReasonInvalid, "must be from 1s to 720h")
	}
	if ttl := m.spec.TTL; ttl != nil && (ttl.Duration < time.Minute || ttl.Duration > 8760*time.Hour) {
		errs.wrong("spec.ttl", v1alpha1.ReasonInvalid, "must be from 1m to 8760h")
	}
}

// template compiles the source template.
func (m *Matcher) template(errs *Errors) {
	const field = "spec.sourceTemplate"
	s := &m.spec.SourceTemplate
	var given []string
	if s.ProblemTemplate != nil {
		given = append(given, "problemTemplate")
		m.source, m.problem = SourceProblem, compileProblem(s.ProblemTemplate, errs)
		for field, given := range map[string]bool{"spec.nodeName": m.spec.NodeName != "", "spec.targetSelector": m.spec.TargetSelector != nil} {
			if given {
				m.warnings.wrong(field, v1alpha1.ReasonInvalid, "has no effect: a problem is diagnosed on the node that detected it")
			}
		}
	}
	if s.PrometheusAlertTemplate != nil {
		given = append(given, "prometheusAlertTemplate")
		m.source, m.alert = SourceAlert, compileAlert(s.PrometheusAlertTemplate, errs)
		for i, l := range m.alert.inject {
			if s.PrometheusAlertTemplate.Regexp.Labels[l] == "" {
				m.warnings.wrong(fmt.Sprintf("%s.prometheusAlertTemplate.parameterInjectionLabels[%d]", field, i), Untrusted,
					"%s becomes a parameter with any value that the creator of the series chooses: restrict it in regexp.labels", l)
			}
		}
		if m.spec.NodeName == "" && m.spec.TargetSelector == nil && m.alert.node == "" && m.alert.podName == "" {
			errs.wrong("spec.nodeName", v1alpha1.ReasonInvalid, "a prometheusAlertTemplate without nodeNameReferenceLabel and podNameReferenceLabel needs nodeName or targetSelector")
		}
	}
	if s.KubernetesEventTemplate != nil {
		given = append(given, "kubernetesEventTemplate")
		m.source, m.event = SourceEvent, compileEvent(s.KubernetesEventTemplate, errs)
		if r := &s.KubernetesEventTemplate.Regexp; r.Namespace == "" && (m.spec.NodeName != "" || m.spec.TargetSelector != nil) {
			m.warnings.wrong(field+".kubernetesEventTemplate.regexp", Untrusted, "names no namespace: any client that may create Events in some namespace can start it on these nodes, in the name of any source")
		}
	}
	if s.CronTemplate != nil {
		given = append(given, "cronTemplate")
		m.source = SourceCron
		const field = field + ".cronTemplate.schedule"
		var err error
		if m.cron, err = parseSchedule(s.CronTemplate.Schedule); err != nil {
			errs.wrong(field, v1alpha1.ReasonInvalidSchedule, "%q: %s", s.CronTemplate.Schedule, err)
		} else if m.count > 0 && m.count <= maxCount && m.cron.denser(m.count, m.within) {
			m.warnings.wrong(field, v1alpha1.ReasonInvalidSchedule, "runs more often than spec.rateLimit allows, %d times in %s: the rest is skipped", m.count, m.within)
		}
		if m.spec.NodeName == "" && m.spec.TargetSelector == nil {
			errs.wrong("spec.nodeName", v1alpha1.ReasonInvalid, "a cronTemplate needs nodeName or targetSelector")
		}
	}
	switch len(given) {
	case 0:
		errs.wrong(field, v1alpha1.ReasonInvalid, "one of problemTemplate, prometheusAlertTemplate, kubernetesEventTemplate and cronTemplate is needed")
	case 1:
	default:
		errs.wrong(field, v1alpha1.ReasonInvalid, "has %s: exactly one is allowed", strings.Join(given, " and "))
	}
}

// parameters checks that there is room for all parameters, so that none is dropped later.
func (m *Matcher) parameters(errs *Errors) {
	names := sets.New(CommonParameters(m.source)...)
	if m.alert != nil {
		names.Insert(m.alert.inject...)
	}
	fromSource := len(names)
	if len(names.Union(sets.KeySet(m.spec.Parameters))) > maxParameters {
		errs.wrong("spec.parameters", v1alpha1.ReasonInvalidParameter, "%d names, and up to %d more from the source: want at most %d", len(m.spec.Parameters), fromSource, maxParameters)
	}
	for _, n := range slices.Sorted(maps.Keys(m.spec.Parameters)) {
		if !validParameter.MatchString(n) {
			errs.wrong("spec.parameters."+n, v1alpha1.ReasonInvalidParameter, "%q: a name is up to 128 letters, digits, and . _ - / between them", n)
		}
	}
}

// compileRegexp returns nil for an empty expression, which matches everything.
func compileRegexp(text v1alpha1.Regexp, field string, errs *Errors) *regexp.Regexp {
	if text == "" {
		return nil
	}
	re, err := regexp.Compile(string(text))
	if err != nil {
		errs.wrong(field, v1alpha1.ReasonInvalidRegexp, "%s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return re
}

// compileRegexps compiles the expressions for labels or annotations. Empty ones are kept, because
// the name must still be present.
func compileRegexps(texts map[string]v1alpha1.Regexp, field string, errs *Errors) []namedRegexp {
	var all []namedRegexp
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		all = append(all, namedRegexp{name, compileRegexp(texts[name], field+"."+name, errs)})
	}
	return all
}

type namedRegexp struct {
	name string
	re   *regexp.Regexp
}

// matches reports whether the expression matches anywhere in the text, as in KubeDiag: only ^ and $
// anchor it.
func matches(re *regexp.Regexp, text string) bool { return re == nil || re.MatchString(text) }

// matchesAll reports whether all names are present with matching texts.
func matchesAll(all []namedRegexp, texts map[string]string) bool {
	for _, n := range all {
		text, ok := texts[n.name]
		if !ok || !matches(n.re, text) {
			return false
		}
	}
	return true
}

// Error is a mistake in a Trigger.
type Error struct {
	Field  string // "spec.sourceTemplate.cronTemplate.schedule"
	Reason string // reason of the condition Accepted, see v1alpha1
	Msg    string
}

func (e *Error) Error() string { return e.Field + ": " + e.Msg }

// Untrusted is the reason of warnings about values that non-administrators control.
const Untrusted = "Untrusted"

// Errors are all mistakes in a Trigger.
type Errors []*Error

func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i := range e {
		texts[i] = e[i].Error()
	}
	return strings.Join(texts, "; ")
}

// Reason returns the reason of the condition Accepted: the one that all mistakes share, or else
// Invalid.
func (e Errors) Reason() string {
	for i := range e {
		if e[i].Reason != e[0].Reason {
			return v1alpha1.ReasonInvalid
		}
	}
	if len(e) == 0 {
		return v1alpha1.ReasonAccepted
	}
	return e[0].Reason
}

// wrong adds a mistake.
func (e *Errors) wrong(field, reason, format string, args ...any) {
	*e = append(*e, &Error{Field: field, Reason: reason, Msg: fmt.Sprintf(format, args...)})
}
