package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/resolve"
	"github.com/kernosis/kernosis/diagnose/worker"
)

// Shipped sets can be run: the API accepts them, each graph is valid, each name is known, each
// Operation is used.
func TestShippedSets(t *testing.T) {
	if diff := cmp.Diff([]string{"disk-error", "hung-task", "oom-kill", "probe-failure"}, manifest.ShippedNames()); diff != "" {
		t.Error(diff)
	}
	for _, name := range manifest.ShippedNames() {
		m, err := manifest.Shipped(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if len(m.OperationSets) != 1 || m.OperationSets[0].Name != name || m.OperationSets[0].Annotations[manifest.Description] == "" {
			t.Errorf("%s: want one OperationSet of this name with a description", name)
			continue
		}
		plan, err := resolve.Set(resolve.Of(m.Operations, catalog.All(operation.Host{})), m.OperationSets[0])
		if err != nil {
			t.Error(resolve.In(m, err))
			continue
		}
		used := map[string]bool{}
		for id := range plan.Graph.Len() {
			used[plan.Graph.Node(id).Operation] = true
			// Repairs in sets must be the controller's, so that the cluster's policies apply.
			if plan.Effect(id) == operation.Remediate && (name != "disk-error" || plan.Graph.Node(id).Operation != "cordon") {
				t.Errorf("%s: node %d repairs", name, id)
			}
		}
		for _, op := range m.Operations {
			if !used[op.Name] || !strings.HasPrefix(op.Name, name) {
				t.Errorf("%s: Operation %s is not used, or its name can be another set's", name, op.Name)
			}
		}
		code, out, errs := graphCommand(t, "", "--shipped", name)
		if code != output.ExitOK || !strings.HasPrefix(out, name+": ") || !strings.Contains(out, "Check") || errs != "" {
			t.Errorf("graph: exit code %d\n%s%s", code, out, errs)
		}
		code, out, _ = diagnoseCommand(t.Context(), "sets", name)
		if code != output.ExitOK || !strings.Contains(out, "kind: OperationSet\n") {
			t.Errorf("exit code %d\n%s", code, out)
		}
	}
	if code, out, _ := diagnoseCommand(t.Context(), "sets"); code != output.ExitOK || strings.Count(out, "\n") != len(manifest.ShippedNames()) || !strings.Contains(out, "hung-task      why tasks hang") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestDiagnoseOperations(t *testing.T) {
	code, out, _ := diagnoseCommand(t.Context(), "operations")
	if code != output.ExitOK || strings.Count(out, "\n") != len(catalog.All(operation.Host{})) || !strings.Contains(out, "check-disk-stalled         Check      Checks whether a disk completes no I/O\n") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	code, out, _ = diagnoseCommand(t.Context(), "operations", "systemd-unit")
	for _, want := range []string{"systemd-unit (Collect)\n", "\nparameters\n  unit  string, at most 255 bytes; required  the unit", "\nresults\n  unit       its full name\n"} {
		if code != output.ExitOK || !strings.Contains(out, want) {
			t.Errorf("exit code %d, no %q in\n%s", code, want, out)
		}
	}
}

// The OperationSet shown in docs/diagnose.md can be run, and the page's table has the shipped sets.
func TestDiagnoseDocs(t *testing.T) {
	doc, err := os.ReadFile("../../docs/diagnose.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(doc), "\n## Write one\n\n`set.yaml`:\n\n```yaml\n")
	example, _, ok := strings.Cut(example, "```")
	path := writeSet(t, "set.yaml", example)
	if code, out, errs := graphCommand(t, "", "-f", path); !ok || code != output.ExitOK || !strings.Contains(out, "Remediate") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	m, set, err := (&setSource{files: []string{path}}).load(newGraph(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := resolve.Set(resolve.Of(m.Operations, catalog.All(operation.Host{})), set); err != nil {
		t.Error(err)
	}
	for _, name := range manifest.ShippedNames() {
		if !strings.Contains(string(doc), "\n| `"+name+"` | ") {
			t.Errorf("there is no row of %s", name)
		}
	}
}

// Shipped Triggers are for shipped rules and conditions, and the docs name them.
func TestShippedTriggers(t *testing.T) {
	var files []document.File
	for _, name := range manifest.ShippedNames() {
		f, err := manifest.ShippedFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	known, err := worker.LoadObjects(files, nil, catalog.All(operation.Host{}))
	if err != nil {
		t.Fatal(err)
	}
	set, err := agent.LoadRules("")
	if err != nil {
		t.Fatal(err)
	}
	rules, conditions := map[string]bool{}, map[string]bool{}
	for _, r := range set.Rules() {
		rules[r.Name], conditions[r.Condition] = true, true
	}
	doc, err := os.ReadFile("../../docs/diagnose.md")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, tr := range known.Triggers {
		used[tr.Spec.OperationSet] = true
		for _, name := range tr.Spec.SourceTemplate.ProblemTemplate.Rules {
			if !rules[name] {
				t.Errorf("%s: there is no rule %s", tr.Name, name)
			}
		}
		for _, name := range tr.Spec.SourceTemplate.ProblemTemplate.Conditions {
			if !conditions[name] {
				t.Errorf("%s: no rule has the condition %s", tr.Name, name)
			}
		}
		if !strings.Contains(string(doc), "\n| `"+tr.Name+"` | `"+tr.Spec.OperationSet+"` | ") {
			t.Errorf("docs/diagnose.md has no row of Trigger %s", tr.Name)
		}
	}
	for _, name := range manifest.ShippedNames() {
		if !used[name] {
			t.Errorf("no Trigger starts %s", name)
		}
	}
}
