package detector

import (
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// isGauge reports whether the rule uses gauges.
func (r *Rule) isGauge() bool { return slices.Contains(r.Events, event.Gauge) }

// checkGauge checks the keys of a rule for gauges. Gauges are read periodically, so the number
// of matches and quiet periods mean nothing.
func (r *loadedRule) checkGauge() {
	if !r.isGauge() {
		return
	}
	if len(r.Events) > 1 {
		r.Errorf("events", "gauge can't be combined with other kinds: write a separate rule for it, with the same fault if it is the same problem")
	}
	if r.awaits() {
		r.Errorf("absentFor", "can't be combined with gauges, which are read periodically: if one can't be read, the condition is Unknown")
		return
	}
	if r.Condition == "" {
		r.Errorf("condition", "is required with gauges: a gauge is a lasting state")
	}
	if r.Keys["clearAfter"] != nil {
		r.Errorf("clearAfter", "can't be used with gauges, which repeat periodically: use clearWhen, such as gauge.percent < 80")
	}
	if r.Keys["clearWhen"] == nil && !r.Latched && r.Keys["clearAfter"] == nil {
		r.Errorf("clearWhen", "is required with gauges, such as gauge.percent < 80")
	}
}

// nameGauges finds the gauges that the rule can match, so that it depends on no other.
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

// lookAtGauges limits the rule to these gauges, and checks that groupBy distinguishes them:
// otherwise a healthy gauge would end the problem of another.
func (r *loadedRule) lookAtGauges(names []string) {
	r.gauges = names
	r.lookAt(event.GaugeStem, names)
	if len(names) > 1 && !slices.Contains(r.GroupBy, gaugeField) {
		r.Errorf("groupBy", "requires %s: the rule matches several gauges (%s)", gaugeField, strings.Join(names, ", "))
	}
	ofFilesystem := slices.Contains(names, event.GaugeSpace) || slices.Contains(names, event.GaugeInodes)
	if ofFilesystem && !slices.Contains(r.GroupBy, "device.name") && !slices.Contains(r.GroupBy, "device.mount") {
		r.Errorf("groupBy", "requires device.name or device.mount: each filesystem has its own gauges %s and %s", event.GaugeSpace, event.GaugeInodes)
	}
}

// repeats reports whether the gauge only repeats that the problem continues. Such an
// event is not a new occurrence, as with a level signal, which is silent while it lasts.
func (en *entry) repeats(r *ruleState, ev *event.Event) bool {
	return ev.Kind == event.Gauge && en.Lasting && en.p.Group != OverflowGroup &&
		(en.p.State == problem.Firing || r.Threshold.Count == 0)
}

// lasting handles a gauge that repeats that the problem continues. Only a higher severity,
// or the confirmation after a time without a source, is a change.
func (e *Engine) lasting(en *entry, ev *event.Event, at event.Moment) {
	if e.worsened(en) {
		e.describe(en, ev)
		e.mark(en.rule.series)
		e.changed = true
	}
	e.confirm(en, at)
}

// stays handles a gauge that neither matches the rule nor ends the problem: between the
// two thresholds the problem continues.
func (e *Engine) stays(r *ruleState, ev *event.Event, at event.Moment) {
	if ev.Gauge == nil || !r.isGauge() {
		return
	}
	if en := e.countsIn(r, ev); en != nil && en.p.State == problem.Firing {
		e.confirm(en, at)
	}
}

// confirm notes that a problem continues, if that needs confirmation.
func (e *Engine) confirm(en *entry, at event.Moment) {
	if en.Confirm {
		en.seen(true, at)
		e.changed = true
	}
}

// reads reports whether the rule uses the event. It ignores gauges for which the rule's "when"
// can't be true, so clearWhen does not have to name the gauge again.
func (r *Rule) reads(ev *event.Event) bool {
	return ev.Gauge == nil || !r.isGauge() || slices.Contains(r.gauges, ev.Gauge.Name)
}

// gaugeGone ends the problems of a gauge that no longer exists.
func (e *Engine) gaugeGone(ev *event.Event, now event.Moment) {
	rules := e.byKind[event.Gauge]
	if rules == nil || ev.Gauge == nil {
		return
	}
	e.act.ev = ev
	e.clearing = true
	for _, r := range rules.match {
		if r.reads(ev) && !r.Latched {
			e.clearGroup(r, ev, nil, now)
		}
	}
	e.clearedAll()
	e.act.ev = nil
}

// Changed reports whether the latest Observe has changed the engine. A gauge that only
// repeats its state changes nothing and need not be written to a journal.
func (e *Engine) Changed() bool { return e.changed || len(e.out) > 0 }
