package tenancy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/resolve"
)

// Refusals are all reasons why a tenant's Diagnosis does not run, one sentence each. The reason of
// its condition Complete is NotAllowed.
type Refusals []string

func (r Refusals) Error() string { return strings.Join(r, "; ") }

func (r *Refusals) add(format string, args ...any) { *r = append(*r, fmt.Sprintf(format, args...)) }

// err returns the refusals as an error, or nil if there are none.
func (r Refusals) err() error {
	if len(r) == 0 {
		return nil
	}
	return r
}

// Applies reports whether a Diagnosis belongs to a tenant: it is outside the system namespace.
func Applies(d *v1alpha1.Diagnosis, systemNamespace string) bool {
	return d.Namespace != systemNamespace
}

// Check returns why a tenant's Diagnosis must not run, as [Refusals], or nil. Resolve the set with
// the same config. Other mistakes in the set are not reported.
func Check(c resolve.Config, set *v1alpha1.OperationSet, d *v1alpha1.Diagnosis) error {
	return refusals(c, set, d).err()
}

func refusals(c resolve.Config, set *v1alpha1.OperationSet, d *v1alpha1.Diagnosis) (r Refusals) {
	r.target(d)
	r.operations(&c, set)
	return r
}

// Target returns why a tenant's Diagnosis must not have its target. It is the part of [Check] that
// needs no OperationSet, so it can run first.
func Target(d *v1alpha1.Diagnosis) error {
	var r Refusals
	r.target(d)
	return r.err()
}

func (r *Refusals) target(d *v1alpha1.Diagnosis) {
	const outside = "outside the system namespace"
	switch p := d.Spec.PodReference; {
	case p == nil:
		r.add("%s a Diagnosis must be about a pod: spec.podReference is required", outside)
	case p.Namespace != "" && p.Namespace != d.Namespace:
		r.add("spec.podReference.namespace: %s a Diagnosis can be only about pods of its own namespace, not of %s", outside, shown(p.Namespace))
	}
	if d.Spec.TargetSelector != nil {
		r.add("spec.targetSelector is not allowed %s", outside)
	}
}

func (r *Refusals) operations(c *resolve.Config, set *v1alpha1.OperationSet) {
	reported := map[string]bool{}
	for i := range set.Spec.AdjacencyList {
		name := set.Spec.AdjacencyList[i].Operation
		if name == "" || reported[name] {
			continue // the start, or reported already
		}
		reported[name] = true
		if why := refused(c, name); why != "" {
			r.add("operation %s %s", shown(name), why)
		}
	}
}

// refused returns why a tenant's Diagnosis can't run an operation, or "" if it can.
func refused(c *resolve.Config, name string) string {
	var op *v1alpha1.Operation
	if c.Operation != nil {
		op = c.Operation(name)
	}
	switch {
	case op == nil:
		// No administrator has allowed a built-in that is named without an Operation.
		return "has no Operation with tenantSafe: true"
	case op.Spec.Processor.HTTPServer != nil:
		return "calls a web server, which is not allowed for a namespace's user"
	case op.Spec.Processor.ScriptRunner != nil:
		return "runs a script, which is not allowed for a namespace's user"
	case op.Spec.Processor.Builtin == nil:
		return "has no built-in"
	case !op.Spec.TenantSafe:
		return "is not tenantSafe"
	}
	b, ok := operation.Lookup(c.Builtins, op.Spec.Processor.Builtin.Name)
	switch {
	case !ok:
		return "is an unknown built-in"
	case b.Effect != operation.Collect:
		return fmt.Sprintf("has the effect %s: only Collect is allowed", b.Effect)
	case !b.TenantSafe:
		return fmt.Sprintf("is %s, which shows more than a pod", b.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(op.Spec.Processor.Builtin.Parameters)) {
		if !free(name) {
			return fmt.Sprintf("sets %s, which must be the pod's own", shown(name))
		}
	}
	return ""
}

// shown returns a foreign name in a form that is safe for a message.
func shown(name string) string {
	const longest = 80
	return display.Safe(name, longest)
}
