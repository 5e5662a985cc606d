package detector

import (
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// isGauge reports whether the rule is about gauges.
func (r *Rule) isGauge() bool { return slices.Contains(r.Events, event.Gauge) }

// checkGauge tests what gauges ask of a rule. They are read again and again, so how
// often one matches says nothing, and neither does that it is quiet.
func (r *loadedRule) checkGauge() {
	if !r.isGauge() {
		return
	}
	if len(r.Events) > 1 {
		r.Errorf("events", "gauge stands alone: write a rule of its own for it, with the same fault where it is the same problem")
	}
	if r.awaits() {
		r.Errorf("absentFor", "does not go with gauges, which are read at a beat: where one can't be read the condition is Unknown")
		return
	}
	if r.Condition == "" {
		r.Errorf("condition", "a rule on gauges needs one: a gauge is a state that lasts")
	}
	if r.Keys["clearAfter"] != nil {
		r.Errorf("clearAfter", "a gauge is never quiet: use clearWhen, such as gauge.percent < 80")
	}
	if r.Keys["clearWhen"] == nil && !r.Latched && r.Keys["clearAfter"] == nil {
		r.Errorf("clearWhen", "is mandatory with gauges, such as gauge.percent < 80")
	}
}

// nameGauges finds the gauges that the rule can be about, so that it depends on no
// other.
func (r *loadedRule) nameGauges(c *compiler) {
	if !r.isGauge() {
		return
	}
	if r.when == nil {
		if r.Keys["when"] == nil {
			r.lookAtGauges(event.Gauges())
		}
		return
	}
	for _, l := range r.when.compared[gaugeField] {
		if !slices.Contains(event.Gauges(), l.text) {
			r.ErrorAt("when", l.offset, "unknown gauge %q%s", l.text, document.Suggest(l.text, event.Gauges()))
			return
		}
	}
	names := possible(r, c, "when", gaugeField, event.Gauges(), map[string]any{kindField: string(event.Gauge)})
	if len(names) == 0 {
		r.Errorf("when", "is false for every gauge")
		return
	}
	r.lookAtGauges(names)
}

// lookAtGauges limits the rule to these gauges, and tests that groupBy distinguishes them:
// else one that is well would end another's problem.
func (r *loadedRule) lookAtGauges(names []string) {
	r.gauges = names
	r.lookAt(event.GaugeStem, names)
	if len(names) > 1 && !slices.Contains(r.GroupBy, gaugeField) {
		r.Errorf("groupBy", "needs %s: the rule is about several (%s)", gaugeField, strings.Join(names, ", "))
	}
	ofFilesystem := slices.Contains(names, event.GaugeSpace) || slices.Contains(names, event.GaugeInodes)
	if ofFilesystem && !slices.Contains(r.GroupBy, "device.name") && !slices.Contains(r.GroupBy, "device.mount") {
		r.Errorf("groupBy", "needs device.name or device.mount: each filesystem has gauges %s and %s of its own", event.GaugeSpace, event.GaugeInodes)
	}
}

// repeats reports whether the gauge only says once more that the problem lasts. Like a
// level signal, which is silent while it does, it is no news then.
func (en *entry) repeats(r *ruleState, ev *event.Event) bool {
	return ev.Kind == event.Gauge && en.Lasting && en.p.Group != OverflowGroup &&
		(en.p.State == problem.Firing || r.Threshold.Count == 0)
}

// lasting handles a gauge that says once more that the problem lasts: news is only that
// it got worse, or that it still does where nobody watched for a while.
func (e *Engine) lasting(en *entry, ev *event.Event, at event.Moment) {
	if e.worsened(en) {
		e.describe(en, ev)
		e.mark(en.rule.series)
		e.changed = true
	}
	e.confirm(en, at)
}

// stays handles a gauge that does not match the rule, after it was asked whether it ends the
// problem: between the two thresholds that stays as it is.
func (e *Engine) stays(r *ruleState, ev *event.Event, at event.Moment) {
	if ev.Gauge == nil || !r.isGauge() {
		return
	}
	if en := e.countsIn(r, ev); en != nil && en.p.State == problem.Firing {
		e.confirm(en, at)
	}
}

// confirm notes that a problem lasts of which nobody knew for a while.
func (e *Engine) confirm(en *entry, at event.Moment) {
	if en.Confirm {
		en.seen(true, at)
		e.changed = true
	}
}

// reads reports whether the event is one that the rule looks at: of gauges, those that
// its "when" can be true of. So clearWhen need not name them again.
func (r *Rule) reads(ev *event.Event) bool {
	return ev.Gauge == nil || !r.isGauge() || slices.Contains(r.gauges, ev.Gauge.Name)
}

// gaugeGone ends the problems of a gauge that is no more.
func (e *Engine) gaugeGone(ev *event.Event, now event.Moment) {
	rules := e.byKind[event.Gauge]
	if rules == nil || ev.Gauge == nil {
		return
	}
	e.act.ev = ev
	for _, r := range rules.match {
		if r.reads(ev) && !r.Latched {
			e.clearGroup(r, ev, nil, now)
		}
	}
	e.act.ev = nil
}

// Changed reports whether the latest Observe has changed the engine. A gauge that only
// says again what it said changes nothing, and needs no place in a journal.
func (e *Engine) Changed() bool { return e.changed || len(e.out) > 0 }
