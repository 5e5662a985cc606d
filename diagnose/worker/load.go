package worker

import (
	"errors"
	"slices"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/resolve"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// LoadObjects reads shipped manifests and own ones that override them by kind and name, and checks
// that all of them can be run. Its error is a document.Errors with all mistakes.
func LoadObjects(shipped, own []document.File, builtins []operation.Builtin) (*Objects, error) {
	r, err := manifest.NewReader()
	if err != nil {
		return nil, err
	}
	below, err := r.Parse(shipped...)
	if err != nil {
		return nil, err
	}
	above, err := r.Parse(own...)
	if err != nil {
		return nil, err
	}
	out := &Objects{
		Operations:    over(below.Operations, above.Operations),
		OperationSets: over(below.OperationSets, above.OperationSets),
		Triggers:      over(below.Triggers, above.Triggers),
	}
	c := checker{out: out, below: below, above: above}
	c.kinds()
	c.sets(builtins)
	c.triggers()
	c.wrong.Sort()
	if err := c.wrong.Err(); err != nil {
		return nil, err
	}
	return out, nil
}

// over merges two layers of objects: those above replace those below of the same name.
func over[O manifest.Object](below, above []O) []O {
	out := slices.DeleteFunc(slices.Clone(below), func(b O) bool {
		return slices.ContainsFunc(above, func(a O) bool { return a.GetName() == b.GetName() })
	})
	return append(out, above...)
}

// checker collects mistakes.
type checker struct {
	out          *Objects
	below, above *manifest.Set
	wrong        document.Errors
}

// of returns the layer that an object is from.
func (c *checker) of(o manifest.Object) *manifest.Set {
	if slices.Contains(c.above.Objects(), o) {
		return c.above
	}
	return c.below
}

func (c *checker) at(o manifest.Object, field, format string, args ...any) {
	c.wrong = append(c.wrong, c.of(o).At(o, field, format, args...))
}

// kinds rejects kinds that have no meaning on a node without a cluster.
func (c *checker) kinds() {
	for _, p := range c.above.RemediationPolicies {
		c.at(p, "kind", "a RemediationPolicy needs a cluster: without one each repair is reported as one that would run")
	}
	for _, d := range c.above.Diagnoses {
		c.at(d, "kind", "a Diagnosis can't be a manifest of a node: use kernosis diagnose run")
	}
}

// sets checks each OperationSet with the merged Operations: one that overrides another may break a
// set that uses it.
func (c *checker) sets(builtins []operation.Builtin) {
	config := resolve.Of(c.out.Operations, builtins)
	reported := map[string]bool{}
	for _, set := range c.out.OperationSets {
		_, err := resolve.Set(config, set)
		var faults resolve.Faults
		if err != nil && !errors.As(err, &faults) {
			c.at(set, "spec", "%s", err)
		}
		for _, f := range faults {
			if reported[f.Error()] {
				continue // a fault of an Operation is reported with the first set that uses it
			}
			reported[f.Error()] = true
			c.at(f.Object, f.Field, "%s", f.Message)
		}
	}
}

// triggers checks that each Trigger can start something here.
func (c *checker) triggers() {
	var sets []string
	for _, s := range c.out.OperationSets {
		sets = append(sets, s.Name)
	}
	for _, t := range c.out.Triggers {
		if t.Spec.SourceTemplate.ProblemTemplate == nil {
			c.at(t, "spec.sourceTemplate", "needs a cluster: without one a node diagnoses only its own problems (problemTemplate)")
		}
		if !slices.Contains(sets, t.Spec.OperationSet) {
			c.at(t, "spec.operationSet", "there is no OperationSet %.80q%s", t.Spec.OperationSet, document.Suggest(t.Spec.OperationSet, sets))
		}
		_, err := trigger.Compile(t)
		var errs trigger.Errors
		if err != nil && !errors.As(err, &errs) {
			c.at(t, "spec", "%s", err)
		}
		for _, e := range errs {
			c.at(t, e.Field, "%s", e.Msg)
		}
	}
}
