package review

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/resolve"
)

// Level is the severity of a finding.
type Level string

// Levels. An object with an error can't be run. An object with a warning can be run, but does not do
// what it seems to do. An info does not count as a finding.
const (
	Error   Level = "error"
	Warning Level = "warning"
	Info    Level = "info"
)

// Codes of findings. They are API: scripts select by them. Errors use the reason of the condition
// Accepted instead, such as UnknownOperation.
const (
	Undeclared    = "undeclared-dependence" // an earlier node has the input, but is no declared dependence
	NoInput       = "missing-input"         // nothing gives a required input
	Unused        = "unused-parameter"      // no operation takes the parameter
	BadParameter  = "bad-parameter"         // the operation that takes it rejects the value
	UnknownSet    = "unknown-operationset"  // no file has it
	UnknownRule   = "unknown-rule"          // neither a shipped nor a given rule has the name
	NoEffect      = "no-effect"             // a setting that is accepted but changes nothing
	Unverified    = "unverified-repair"     // nothing ever shows whether the repair has helped
	Untrusted     = "untrusted-text"        // text that non-administrators may choose
	NotTenantSafe = "not-tenant-safe"       // marked tenantSafe, but never runs for a tenant
)

// Finding is one finding about a manifest.
type Finding struct {
	Place *document.Error // with the message
	Level Level
	Code  string
}

// Known is what exists besides the manifests.
type Known struct {
	Builtins []operation.Builtin // from [catalog.All]
	// Shipped are OperationSets and Operations that the manifests may name; nil: none.
	Shipped *manifest.Set
	// Rules, Conditions and Reasons are those of the detector's rules.
	Rules, Conditions, Reasons []string
}

// Manifests returns the findings about manifests, in the order of files and lines.
func Manifests(m *manifest.Set, k Known) []Finding {
	k.Shipped = cmp.Or(k.Shipped, &manifest.Set{})
	r := &review{m: m, k: k, reported: map[string]bool{}, plans: map[string]*resolve.Plan{}}
	r.config = resolve.Of(slices.Concat(m.Operations, k.Shipped.Operations), k.Builtins)
	r.config.Operation = r.operation
	for _, o := range m.Operations {
		r.one(o)
	}
	for _, s := range m.OperationSets {
		r.set(s)
	}
	for _, t := range m.Triggers {
		r.trigger(t)
	}
	for _, d := range m.Diagnoses {
		r.diagnosis(d)
	}
	for _, p := range m.RemediationPolicies {
		r.policy(p)
	}
	slices.SortStableFunc(r.found, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Place.File, b.Place.File), a.Place.Line-b.Place.Line)
	})
	return r.found
}

type review struct {
	m        *manifest.Set
	k        Known
	config   resolve.Config
	found    []Finding
	reported map[string]bool
	plans    map[string]*resolve.Plan // by the set's name; nil: it can't be resolved
}

func (r *review) addFinding(level Level, code string, o manifest.Object, field, format string, args ...any) {
	f := Finding{Place: r.m.At(o, field, format, args...), Level: level, Code: code}
	if key := f.Place.Error(); !r.reported[key] {
		r.reported[key] = true
		r.found = append(r.found, f)
	}
}

// operation returns an Operation in a form that can be resolved here: a missing Secret is not a
// mistake, because Secrets exist only in a cluster.
func (r *review) operation(name string) *v1alpha1.Operation {
	op := cmp.Or(r.m.Operation(name), r.k.Shipped.Operation(name))
	if op == nil || op.Spec.Processor.HTTPServer == nil || op.Spec.Processor.HTTPServer.ClientCertificateSecret == nil {
		return op
	}
	op = op.DeepCopy()
	op.Spec.Processor.HTTPServer.ClientCertificateSecret = nil
	return op
}

// faults adds findings for the faults from package resolve.
func (r *review) faults(err error) {
	faults, _ := errors.AsType[resolve.Faults](err)
	for _, f := range faults {
		r.addFinding(Error, f.Reason, f.Object, f.Field, "%s", f.Message)
	}
}

// plan resolves the OperationSet that an object names, from the manifests or the shipped sets. It
// returns nil for an unknown set, which it reports, and for an invalid one.
func (r *review) plan(of manifest.Object, name string) *resolve.Plan {
	set := cmp.Or(r.m.OperationSet(name), r.k.Shipped.OperationSet(name))
	if set == nil {
		var names []string
		for _, s := range slices.Concat(r.m.OperationSets, r.k.Shipped.OperationSets) {
			names = append(names, s.Name)
		}
		r.addFinding(Warning, UnknownSet, of, "spec.operationSet", "no file has an OperationSet %.80q%s", name, document.Suggest(name, names))
		return nil
	}
	if p, ok := r.plans[name]; ok {
		return p
	}
	p, err := resolve.Set(r.config, set)
	if err != nil {
		p = nil
		r.faults(err)
	}
	r.plans[name] = p
	return p
}

// unknownOperation reports the name of an Operation that does not exist.
func (r *review) unknownOperation(of manifest.Object, field, name string) {
	r.addFinding(Warning, v1alpha1.ReasonUnknownOperation, of, field, "no Operation or built-in is named %.80q%s", name, document.Suggest(name, r.config.AllNames()))
}
