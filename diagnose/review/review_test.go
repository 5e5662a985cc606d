package review_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/review"
)

func read(t *testing.T, text string) *manifest.Set {
	t.Helper()
	r, err := manifest.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.Parse(document.File{Name: "f.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// lines returns the findings as they are printed.
func lines(found []review.Finding) []string {
	var out []string
	for _, f := range found {
		out = append(out, string(f.Level)+" "+f.Code+" "+f.Place.Error())
	}
	return out
}

func known(t *testing.T) review.Known {
	t.Helper()
	return review.Known{
		Builtins: catalog.All(operation.Host{}),
		Shipped: read(t, `apiVersion: kernosis.io/v1alpha1
kind: OperationSet
metadata: {name: shipped}
spec: {adjacencyList: [{id: 0, to: [1]}, {id: 1, operation: shipped-log}]}
---
apiVersion: kernosis.io/v1alpha1
kind: Operation
metadata: {name: shipped-log}
spec: {processor: {builtin: {name: kmsg-tail}}}
`),
		Rules: []string{"oom-kill"}, Conditions: []string{"KernelDeadlock"}, Reasons: []string{"OOMKilling"},
	}
}

const head = "apiVersion: kernosis.io/v1alpha1\nkind: "

func TestManifests(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing": {head + "OperationSet\nmetadata: {name: s}\nspec: {adjacencyList: [{id: 0, to: [1]}, {id: 1, operation: blocked-stacks, to: [2]}, {id: 2, operation: check-lock-holder}]}", nil},
		"graph and names": {
			head + "OperationSet\nmetadata: {name: s}\nspec:\n  adjacencyList:\n  - {id: 0, to: [1]}\n  - {id: 1, operation: socket, to: [2]}\n  - {id: 2, operation: mounts, to: [1]}\n",
			[]string{
				"error Cycle f.yaml:7:32: spec.adjacencyList[1].to: nodes 1 → 2 → 1 form a cycle",
				`error UnknownOperation f.yaml:7:13: spec.adjacencyList[1].operation: node 1: no Operation or built-in is named "socket", did you mean "sockets"?`,
			},
		},
		"an Operation that no set uses": {
			head + "Operation\nmetadata: {name: o}\nspec:\n  dependences: [mount, shipped-log]\n  processor: {builtin: {name: sockets, parameters: {prot: \"1\"}}}\n",
			[]string{
				`warning UnknownOperation f.yaml:5:17: spec.dependences[0]: no Operation or built-in is named "mount", did you mean "mounts"?`,
				`error InvalidParameter f.yaml:6:53: spec.processor.builtin.parameters.prot: sockets has no parameter "prot", did you mean "port"?`,
			},
		},
		"a repair that nothing verifies": {
			head + "OperationSet\nmetadata: {name: s}\nspec: {adjacencyList: [{id: 0, to: [1, 2]}, {id: 1, operation: check-filesystem-frozen, to: [3]}, {id: 2, operation: mounts, to: [3]}, {id: 3, operation: cordon}]}\n---\n" +
				head + "OperationSet\nmetadata: {name: checked}\nspec: {adjacencyList: [{id: 0, to: [1]}, {id: 1, operation: check-filesystem-frozen, to: [2]}, {id: 2, operation: cordon}]}\n---\n" +
				head + "Trigger\nmetadata: {name: t}\nspec:\n  operationSet: s\n  nodeName: n7\n  sourceTemplate: {cronTemplate: {schedule: \"@daily\"}}\n---\n" +
				head + "Trigger\nmetadata: {name: checked}\nspec:\n  operationSet: checked\n  nodeName: n7\n  sourceTemplate: {cronTemplate: {schedule: \"@daily\"}}\n---\n" +
				head + "Trigger\nmetadata: {name: alert}\nspec:\n  operationSet: s\n  nodeName: n7\n  sourceTemplate: {prometheusAlertTemplate: {regexp: {alertName: ^A$}}}\n",
			[]string{
				"warning unverified-repair f.yaml:15:3: spec.operationSet: no check runs before node 3 (cordon) of s, so nothing shows whether that repair has helped, and nothing escalates: Events and schedules have no end",
			},
		},
		"a Secret is a cluster's": {
			head + "Operation\nmetadata: {name: o}\nspec:\n  storage: {hostPath: {path: /x}}\n  processor: {httpServer: {address: a.example, scheme: https, clientCertificateSecret: {name: c}}}\n",
			nil,
		},
		"never for a tenant": {
			head + "Operation\nmetadata: {name: o}\nspec:\n  tenantSafe: true\n  processor: {builtin: {name: sockets, parameters: {podUID: a}}}\n",
			[]string{"warning not-tenant-safe f.yaml:5:3: spec.tenantSafe: no Diagnosis outside the system namespace can run it: operation o sets podUID, which must be the pod's own"},
		},
		"a dependence that is not declared": {
			head + "OperationSet\nmetadata: {name: s}\nspec:\n  adjacencyList:\n  - {id: 0, to: [1]}\n  - {id: 1, operation: script, to: [2]}\n  - {id: 2, operation: dns-lookup}\n---\n" +
				head + "OperationSet\nmetadata: {name: good}\nspec:\n  adjacencyList:\n  - {id: 0, to: [1]}\n  - {id: 1, operation: disk-identity, to: [2]}\n  - {id: 2, operation: pod-list, dependences: [1]}\n---\n" +
				head + "OperationSet\nmetadata: {name: bad}\nspec:\n  adjacencyList:\n  - {id: 0, to: [1]}\n  - {id: 1, operation: disk-identity, to: [2]}\n  - {id: 2, operation: volume}\n---\n" +
				head + "Operation\nmetadata: {name: script}\nspec: {processor: {scriptRunner: {script: id}}}\n---\n" +
				head + "Operation\nmetadata: {name: volume}\nspec: {processor: {scriptRunner: {script: id, argKeys: [volumes]}}}\n",
			[]string{
				"info missing-input f.yaml:8:5: spec.adjacencyList[2]: node 2 (dns-lookup) requires name: the Diagnosis must provide it",
				"warning undeclared-dependence f.yaml:26:5: spec.adjacencyList[2]: node 2 (volume) takes volumes, which node 1 (disk-identity) returns: it is passed on only if that node is among the dependences",
			},
		},
		"Triggers": {
			head + "Trigger\nmetadata: {name: t}\nspec:\n  operationSet: s\n  parameters: {windw: 2s, type: XYZ}\n  sourceTemplate:\n    problemTemplate:\n      rules: [oom-kill, oomkill]\n      conditions: [Deadlock]\n      reasons: [OOMKilling, Oops]\n---\n" +
				head + "Trigger\nmetadata: {name: u}\nspec:\n  operationSet: shippd\n  nodeName: n1\n  sourceTemplate: {cronTemplate: {schedule: \"0 0 31 2 *\"}}\n---\n" +
				head + "Trigger\nmetadata: {name: v}\nspec:\n  operationSet: shipped\n  parameters: {lines: many}\n  sourceTemplate:\n    prometheusAlertTemplate:\n      regexp: {alertName: A}\n      nodeNameReferenceLabel: node\n      parameterInjectionLabels: [lines, severity]\n---\n" +
				head + "OperationSet\nmetadata: {name: s}\nspec: {adjacencyList: [{id: 0, to: [1]}, {id: 1, operation: dns-lookup}]}\n",
			[]string{
				"warning missing-input f.yaml:5:3: spec.operationSet: node 1 (dns-lookup) of s requires name, which neither the Trigger nor a dependence provides",
				`error bad-parameter f.yaml:6:27: spec.parameters.type: node 1 (dns-lookup) of s can't take it: "XYZ": want one of A, AAAA, CNAME, MX, NS, PTR, SOA, SRV, TXT`,
				`warning unused-parameter f.yaml:6:16: spec.parameters.windw: no operation of s takes a parameter "windw"`,
				`warning unknown-rule f.yaml:9:25: spec.sourceTemplate.problemTemplate.rules[1]: no shipped or given rule is named "oomkill", did you mean "oom-kill"?`,
				`warning unknown-rule f.yaml:10:20: spec.sourceTemplate.problemTemplate.conditions[0]: no shipped or given rule has a condition "Deadlock", did you mean "KernelDeadlock"?`,
				`warning unknown-rule f.yaml:11:29: spec.sourceTemplate.problemTemplate.reasons[1]: no shipped or given rule has a reason "Oops"`,
				`warning unknown-operationset f.yaml:17:3: spec.operationSet: no file has an OperationSet "shippd", did you mean "shipped"?`,
				`error InvalidSchedule f.yaml:19:35: spec.sourceTemplate.cronTemplate.schedule: "0 0 31 2 *": never occurs`,
				`error bad-parameter f.yaml:26:16: spec.parameters.lines: node 1 (shipped-log) of shipped can't take it: "many": want a whole number`,
				`warning untrusted-text f.yaml:31:34: spec.sourceTemplate.prometheusAlertTemplate.parameterInjectionLabels[0]: lines becomes a parameter with any value that the creator of the series chooses: restrict it in regexp.labels`,
				`warning untrusted-text f.yaml:31:41: spec.sourceTemplate.prometheusAlertTemplate.parameterInjectionLabels[1]: severity becomes a parameter with any value that the creator of the series chooses: restrict it in regexp.labels`,
				`warning unused-parameter f.yaml:31:41: spec.sourceTemplate.prometheusAlertTemplate.parameterInjectionLabels[1]: no operation of shipped takes a parameter "severity"`,
			},
		},
		"a Diagnosis": {
			head + "Diagnosis\nmetadata: {name: d, namespace: x}\nspec: {operationSet: shipped, nodeName: n1, parameters: {line: \"3\"}}\n---\n" +
				head + "Diagnosis\nmetadata: {name: e, namespace: x}\nspec: {operationSet: none, nodeName: n1}\n",
			[]string{
				`warning bad-parameter f.yaml:4:45: spec.parameters: parameter "line": no operation of the graph has it, did you mean "lines"?`,
				`warning unknown-operationset f.yaml:9:8: spec.operationSet: no file has an OperationSet "none"`,
			},
		},
		"a policy": {
			head + "RemediationPolicy\nmetadata: {name: p}\nspec:\n  maintenanceWindows: [{schedule: \"0 25 * * *\", duration: 1h}]\n  escalation: [{operation: mounts, order: 1}, {operation: restart-uni, order: 2}, {operation: restart-unit, order: 3}]\n",
			[]string{
				"error Invalid f.yaml:5:25: spec.maintenanceWindows[0].schedule: end of range (25) above maximum (23): 25",
				"warning no-effect f.yaml:6:17: spec.escalation[0].operation: mounts is not a repair: its effect is Collect",
				`warning UnknownOperation f.yaml:6:48: spec.escalation[1].operation: no Operation or built-in is named "restart-uni", did you mean "restart-unit"?`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, lines(review.Manifests(read(t, c.text), known(t)))); diff != "" {
				t.Errorf("(-want +have)\n%s", diff)
			}
		})
	}
}

// A finding is reported once, even if several sets cause it.
func TestFindingsAreReportedOnce(t *testing.T) {
	set := func(name string) string {
		return "---\n" + head + "OperationSet\nmetadata: {name: " + name + "}\nspec: {adjacencyList: [{id: 0, to: [1]}, {id: 1, operation: o}]}\n"
	}
	text := head + "Operation\nmetadata: {name: o}\nspec: {processor: {builtin: {name: none}}}\n" + set("a") + set("b")
	if found := lines(review.Manifests(read(t, text), known(t))); len(found) != 1 || !strings.Contains(found[0], "UnknownBuiltin") {
		t.Errorf("%q", found)
	}
}
