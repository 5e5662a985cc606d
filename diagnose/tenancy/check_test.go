package tenancy_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/tenancy"
)

func TestWhichOperationsATenantMayRun(t *testing.T) {
	for name, c := range map[string]struct{ set, want string }{
		"allowed":             {set("memory") + op("memory", "{tenantSafe: true, processor: {builtin: {name: cgroup-memory}}}"), ""},
		"how is fixed":        {set("memory") + op("memory", "{tenantSafe: true, processor: {builtin: {name: cgroup-memory, parameters: {window: 1s}}}}"), ""},
		"no Operation":        {set("cgroup-memory"), `operation cgroup-memory has no Operation with tenantSafe: true`},
		"unknown":             {set("nothing"), `operation nothing has no Operation`},
		"not by its object":   {set("memory") + op("memory", "{processor: {builtin: {name: cgroup-memory}}}"), "operation memory is not tenantSafe"},
		"not by its built-in": {set("log") + op("log", "{tenantSafe: true, processor: {builtin: {name: kmsg-tail}}}"), "operation log is kmsg-tail, which shows more than a pod"},
		"a Check":             {set("leak") + op("leak", "{tenantSafe: true, processor: {builtin: {name: check-memory-leak}}}"), "operation leak has the effect Check"},
		"a repair":            {set("fix") + op("fix", "{tenantSafe: true, processor: {builtin: {name: restart-unit, parameters: {unit: kubelet}}}}"), "operation fix has the effect Remediate"},
		"a web server":        {set("hook") + op("hook", "{tenantSafe: true, effect: Collect, processor: {httpServer: {address: 10.0.0.1}}}"), "operation hook calls a web server"},
		"a script":            {set("sh") + op("sh", "{tenantSafe: true, effect: Collect, processor: {scriptRunner: {script: id}}}"), "operation sh runs a script"},
		"what is fixed":       {set("other") + op("other", "{tenantSafe: true, processor: {builtin: {name: cgroup-memory, parameters: {podUID: "+others+"}}}}"), "operation other sets podUID, which must be the pod's own"},
		"all are reported": {set("hook", "kmsg-tail") + op("hook", "{tenantSafe: true, effect: Collect, processor: {httpServer: {address: 10.0.0.1}}}"),
			"operation hook calls a web server, which is not allowed for a namespace's user; operation kmsg-tail has no Operation with tenantSafe: true"},
	} {
		t.Run(name, func(t *testing.T) {
			config, s := read(t, c.set, catalog.All(operation.Host{}))
			_, resolved := tenancy.Resolve(config, s, diagnosis(nil), web())
			for _, err := range []error{tenancy.Check(config, s, diagnosis(nil)), resolved} {
				if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %s", err, c.want)
				}
			}
		})
	}
}

func TestWhatATenantsDiagnosisMayBeAbout(t *testing.T) {
	const memory = "{tenantSafe: true, processor: {builtin: {name: cgroup-memory}}}"
	c, s := read(t, set("memory")+op("memory", memory), catalog.All(operation.Host{}))
	for name, tc := range map[string]struct {
		change func(*v1alpha1.Diagnosis)
		want   string
	}{
		"its pod":           {func(*v1alpha1.Diagnosis) {}, ""},
		"its pod, in full":  {func(d *v1alpha1.Diagnosis) { d.Spec.PodReference.Namespace = "shop" }, ""},
		"on its node":       {func(d *v1alpha1.Diagnosis) { d.Spec.NodeName = "n7" }, ""},
		"another namespace": {func(d *v1alpha1.Diagnosis) { d.Spec.PodReference.Namespace = "bank" }, "not of bank"},
		"a node":            {func(d *v1alpha1.Diagnosis) { d.Spec.PodReference, d.Spec.NodeName = nil, "n7" }, "spec.podReference is required"},
		"others": {func(d *v1alpha1.Diagnosis) {
			d.Spec.PodReference, d.Spec.TargetSelector = nil, &v1alpha1.TargetSelector{}
		}, "spec.targetSelector is not allowed"},
		"a node it is not on":  {func(d *v1alpha1.Diagnosis) { d.Spec.NodeName = "n8" }, "pod web-0 is not on node n8"},
		"another than found":   {func(d *v1alpha1.Diagnosis) { d.Spec.PodReference.Name = "web-1" }, "is not the requested one"},
		"parameters of others": {func(d *v1alpha1.Diagnosis) { d.Spec.Parameters = map[string]string{"pid": "1"} }, "parameter pid can't be given"},
	} {
		d := diagnosis(nil)
		tc.change(d)
		_, err := tenancy.Resolve(c, s, d, web())
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
	d := diagnosis(nil)
	if tenancy.Applies(d, "shop") || !tenancy.Applies(d, system) {
		t.Error("who is a tenant")
	}
	d.Spec.PodReference = nil
	if tenancy.Target(d) == nil || tenancy.Check(c, s, d) == nil {
		t.Error("a Diagnosis without a pod")
	}
}

// A run that is resumed has the parameters that it began with, or fails.
func TestPlanWantsThePodsParameters(t *testing.T) {
	c, s := read(t, set("memory")+op("memory", "{tenantSafe: true, processor: {builtin: {name: cgroup-memory}}}"), catalog.All(operation.Host{}))
	own, err := tenancy.Parameters(nil, web())
	if err != nil {
		t.Fatal(err)
	}
	if p, err := tenancy.Plan(c, s, diagnosis(nil), own); err != nil || p.Graph.Len() != 2 {
		t.Errorf("%v", err)
	}
	for _, name := range []string{"podUID", "podNamespace", "address"} {
		less := maps.Clone(own)
		delete(less, name)
		if _, err := tenancy.Plan(c, s, diagnosis(nil), less); err == nil {
			t.Errorf("without %s", name)
		}
	}
	other := diagnosis(nil)
	other.Namespace = "bank"
	if _, err := tenancy.Plan(c, s, other, own); err == nil {
		t.Error("the parameters of another namespace's pod")
	}
}
