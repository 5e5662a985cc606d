package detector

import (
	"maps"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/kernosis/kernosis/collector/event"
)

// Fields whose value alone may make an expression false.
const (
	kindField   = "event.kind"
	checkField  = "event.check"
	probeField  = "event.probe"
	targetField = "event.target"
	gaugeField  = "gauge.name"
)

// possible returns the values of a field for which a key's expression can be true. The fields in
// given have fixed values; all others are unknown. A partial result counts as possible.
func possible[T ~string](r *loadedRule, c *compiler, key, field string, values []T, given map[string]any) []T {
	checked, issues := c.env.Compile(r.Keys[key].Value)
	if issues.Err() != nil {
		r.Errorf(key, "%v", issues.Err())
		return nil
	}
	program, err := c.env.Program(checked, cel.EvalOptions(cel.OptPartialEval))
	if err != nil {
		r.Errorf(key, "%v", err)
		return nil
	}
	var unknown []*cel.AttributePatternType
	for _, f := range event.Fields() {
		if _, ok := given[f.Name]; !ok && f.Name != field {
			unknown = append(unknown, cel.AttributePattern(f.Name))
		}
	}
	for name := range c.match {
		unknown = append(unknown, cel.AttributePattern(name))
	}
	return slices.DeleteFunc(slices.Clone(values), func(value T) bool {
		known := map[string]any{field: string(value)}
		maps.Copy(known, given)
		vars, err := cel.PartialVars(known, unknown...)
		if err != nil {
			r.Errorf(key, "%v", err)
			return true
		}
		v, _, err := program.Eval(vars)
		return err == nil && v == types.False
	})
}

// possibleNames returns the names for which "when" can be true, among the names that it compares
// the field with. It returns nil if "when" may be true for any name.
func (r *loadedRule) possibleNames(c *compiler, field string, given map[string]any) []string {
	names := []string{""} // no source has this name: if it is possible, so are other names
	for _, l := range r.when.compared[field] {
		if !slices.Contains(names, l.text) {
			names = append(names, l.text)
		}
	}
	if names = possible(r, c, "when", field, names, given); slices.Contains(names, "") {
		return nil
	}
	return names
}

// lookAt limits the rule to the named checks or gauges, so that it depends on no other.
func (r *loadedRule) lookAt(stem string, names []string) {
	for i := range r.named {
		if r.named[i].stem == stem {
			r.named[i] = newNamed(stem, names)
		}
	}
}

// nameChecks finds the checks that the rule can match.
func (r *loadedRule) nameChecks(c *compiler) {
	if len(r.when.compared[checkField]) > 0 {
		r.lookAt(event.CheckStem, r.possibleNames(c, checkField, map[string]any{kindField: string(event.Check)}))
	}
}

// nameServices finds the node services that a probe rule can match. Each service is a source of
// its own: its state says nothing about other services or pods.
func (r *loadedRule) nameServices(c *compiler) {
	ofProbe := func(stem string) bool { return stem == string(event.Probe) }
	if len(r.when.compared[targetField]) == 0 || !slices.ContainsFunc(r.stems, ofProbe) {
		return
	}
	given := map[string]any{kindField: string(event.Probe)}
	if len(possible(r, c, "when", probeField, []string{"startup", "liveness", "readiness"}, given)) > 0 {
		return // it may match pods
	}
	given[probeField] = event.ProbeService
	if names := r.possibleNames(c, targetField, given); len(names) > 0 {
		r.stems = slices.DeleteFunc(r.stems, ofProbe)
		r.named = append(r.named, newNamed(event.ServiceStem, names))
	}
}
