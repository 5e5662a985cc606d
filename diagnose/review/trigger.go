package review

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/diagnose/resolve"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

func (r *review) trigger(t *v1alpha1.Trigger) {
	m, err := trigger.Compile(t)
	if wrong, ok := errors.AsType[trigger.Errors](err); ok {
		for _, e := range wrong {
			r.addFinding(Error, e.Reason, t, e.Field, "%s", e.Msg)
		}
	}
	if m != nil {
		for _, e := range m.Warnings() {
			code := NoEffect
			if e.Reason == trigger.Untrusted {
				code = Untrusted
			}
			r.addFinding(Warning, code, t, e.Field, "%s", e.Msg)
		}
	}
	r.problems(t)
	plan := r.plan(t, t.Spec.OperationSet)
	if plan == nil || m == nil {
		return
	}
	given := map[string]bool{}
	for _, name := range trigger.CommonParameters(m.Source()) {
		given[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(t.Spec.Parameters)) {
		given[name] = true
		r.parameter(t, "spec.parameters."+name, plan, name, t.Spec.Parameters[name])
	}
	if a := t.Spec.SourceTemplate.PrometheusAlertTemplate; a != nil {
		for i, label := range a.ParameterInjectionLabels {
			given[string(label)] = true
			r.parameter(t, "spec.sourceTemplate.prometheusAlertTemplate.parameterInjectionLabels["+strconv.Itoa(i)+"]", plan, string(label), "")
		}
	}
	r.required(t, plan, given)
	if s := m.Source(); s == trigger.SourceEvent || s == trigger.SourceCron {
		r.unverified(t, plan)
	}
}

// unverified reports the first repair of a set that some path reaches without a check. After an
// Event or a schedule nothing else shows whether it has helped.
func (r *review) unverified(t *v1alpha1.Trigger, plan *resolve.Plan) {
	seen, next := map[int]bool{0: true}, []int{0}
	first := plan.Graph.Len()
	for len(next) > 0 {
		from := next[0]
		next = next[1:]
		for _, to := range plan.Graph.Node(from).To {
			switch {
			case seen[to] || plan.Effect(to) == operation.Check:
				continue
			case plan.Effect(to) == operation.Remediate:
				first = min(first, to)
			}
			seen[to], next = true, append(next, to)
		}
	}
	if first < plan.Graph.Len() {
		r.addFinding(Warning, Unverified, t, "spec.operationSet", "no check runs before node %d (%s) of %s, so nothing shows whether that repair has helped, and nothing escalates: Events and schedules have no end",
			first, plan.Graph.Node(first).Operation, t.Spec.OperationSet)
	}
}

func (r *review) parameter(t *v1alpha1.Trigger, field string, plan *resolve.Plan, name, value string) {
	if !plan.Takes(name) {
		r.addFinding(Warning, Unused, t, field, "no operation of %s takes a parameter %.80q%s", t.Spec.OperationSet, name, document.Suggest(name, plan.Parameters()))
	}
	for id := 1; id < plan.Graph.Len(); id++ {
		inputs := plan.Inputs(id)
		i := slices.IndexFunc(inputs, func(p operation.Parameter) bool { return p.Name == name })
		if i < 0 || inputs[i].Kind == "" { // a script takes any text
			continue
		}
		if err := inputs[i].Check(value); err != nil {
			r.addFinding(Error, BadParameter, t, field, "node %d (%s) of %s can't take it: %s", id, plan.Graph.Node(id).Operation, t.Spec.OperationSet, err)
		}
	}
}

// required reports inputs that the set's operations require and a Trigger's Diagnoses never have.
func (r *review) required(t *v1alpha1.Trigger, plan *resolve.Plan, given map[string]bool) {
	for id := 1; id < plan.Graph.Len(); id++ {
		for _, p := range plan.Inputs(id) {
			if p.Required && !given[p.Name] && !plan.Depends(id, p.Name) {
				r.addFinding(Warning, NoInput, t, "spec.operationSet", "node %d (%s) of %s requires %s, which neither the Trigger nor a dependence provides",
					id, plan.Graph.Node(id).Operation, t.Spec.OperationSet, p.Name)
			}
		}
	}
}

// problems checks the names by which a Trigger selects problems.
func (r *review) problems(t *v1alpha1.Trigger) {
	p := t.Spec.SourceTemplate.ProblemTemplate
	if p == nil {
		return
	}
	for _, c := range []struct {
		field, noun   string
		wanted, known []string
	}{
		{"rules", "rule is named", p.Rules, r.k.Rules},
		{"conditions", "rule has a condition", p.Conditions, r.k.Conditions},
		{"reasons", "rule has a reason", p.Reasons, r.k.Reasons},
	} {
		for i, name := range c.wanted {
			if !slices.Contains(c.known, name) {
				r.addFinding(Warning, UnknownRule, t, "spec.sourceTemplate.problemTemplate."+c.field+"["+strconv.Itoa(i)+"]",
					"no shipped or given %s %.80q%s", c.noun, name, document.Suggest(name, c.known))
			}
		}
	}
}

func (r *review) diagnosis(d *v1alpha1.Diagnosis) {
	plan := r.plan(d, d.Spec.OperationSet)
	if plan == nil {
		return
	}
	if err := plan.CheckParameters(d.Spec.Parameters); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			r.addFinding(Warning, BadParameter, d, "spec.parameters", "%s", line)
		}
	}
}

func (r *review) policy(p *v1alpha1.RemediationPolicy) {
	if err := policy.New(p.DeepCopy()).Err(); err != nil {
		field, msg, ok := strings.Cut(err.Error(), ": ")
		if !ok {
			field, msg = "", err.Error()
		}
		r.addFinding(Error, v1alpha1.ReasonInvalid, p, strings.TrimSuffix("spec."+field, "."), "%s", msg)
	}
	for i := range p.Spec.Escalation {
		name := p.Spec.Escalation[i].Operation
		field := "spec.escalation[" + strconv.Itoa(i) + "].operation"
		switch effect := r.config.Effect(name); effect {
		case "":
			r.unknownOperation(p, field, name)
		case operation.Remediate:
		default:
			r.addFinding(Warning, NoEffect, p, field, "%s is not a repair: its effect is %s", name, effect)
		}
	}
}
