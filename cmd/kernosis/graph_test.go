package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
)

const hungTaskSet = `apiVersion: kernosis.io/v1alpha1
kind: OperationSet
metadata: {name: hung-task}
spec:
  adjacencyList:
  - {id: 0, to: [1]}
  - {id: 1, operation: blocked-stacks, to: [2, 3]}
  - {id: 2, operation: check-disk-stalled, dependences: [1], to: [4]}
  - {id: 3, operation: check-lock-holder, dependences: [1]}
  - {id: 4, operation: page-someone}
---
apiVersion: kernosis.io/v1alpha1
kind: Operation
metadata: {name: page-someone}
spec:
  dependences: [check-disk-stalled]
  processor: {httpServer: {address: pager.example.org, port: 443, scheme: https}}
`

const brokenSet = `apiVersion: kernosis.io/v1alpha1
kind: OperationSet
metadata: {name: broken}
spec:
  adjacencyList:
  - {id: 0, to: [1]}
  - {id: 1, operation: a, to: [2]}
  - id: 2
    operation: b
    to: [3]
  - {id: 3, operation: c, to: [1, 4], dependences: [4]}
  - {id: 5, operation: d}
  - {id: 5, operation: e}
`

// graphCommand runs "kernosis graph" and returns its exit code and outputs.
func graphCommand(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	root := newRoot()
	root.SetArgs(append([]string{"graph"}, args...))
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&errs)
	code = exitCode(root.ExecuteContext(t.Context()), &errs)
	return code, out.String(), errs.String()
}

func writeSet(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGraphAsText(t *testing.T) {
	const want = `hung-task: 5 nodes, 4 edges, 2 paths

  0  start               → 1
  1  blocked-stacks      → 2, 3         Collect
  2  check-disk-stalled  → 4            Check · uses 1
  3  check-lock-holder   end of a path  Check · uses 1
  4  page-someone        end of a path  Remediate · uses 2

Paths, in the order in which they are tried:
  1 blocked-stacks → 2 check-disk-stalled → 4 page-someone
  1 blocked-stacks → 3 check-lock-holder
`
	path := writeSet(t, "set.yaml", hungTaskSet)
	for _, args := range [][]string{{"-f", path}, {"-f", path, "hung-task", "-o", "text"}, {"-f", "-"}, {"-f", filepath.Dir(path)}} {
		if code, out, errs := graphCommand(t, hungTaskSet, args...); code != output.ExitOK || out != want || errs != "" {
			t.Errorf("%v: exit code %d\n%s%s", args, code, out, errs)
		}
	}
}

func TestGraphInOtherForms(t *testing.T) {
	path := writeSet(t, "set.yaml", hungTaskSet)
	for form, begin := range map[string]string{"svg": "<svg xmlns=", "dot": "digraph {\n", "mermaid": "---\ntitle: \"hung-task\"\n---\nflowchart TD\n"} {
		code, out, errs := graphCommand(t, "", "-f", path, "-o", form)
		if code != output.ExitOK || !strings.HasPrefix(out, begin) || !strings.Contains(out, "check-lock-holder") || !strings.Contains(out, "Remediate") || errs != "" {
			t.Errorf("%s: exit code %d\n%s%s", form, code, out, errs)
		}
	}
}

func TestGraphReportsMistakesWithTheirPlace(t *testing.T) {
	broken := writeSet(t, "broken.yaml", brokenSet)
	two := writeSet(t, "two.yaml", hungTaskSet+"---\n"+brokenSet)
	misspelt := writeSet(t, "misspelt.yaml", strings.Replace(hungTaskSet, "dependences", "dependencies", 1))
	lacking := writeSet(t, "lacking.yaml", strings.Replace(hungTaskSet, "dependences: [check-disk-stalled]", "dependences: [check-mounts]", 1))
	none := writeSet(t, "none.yaml", hungTaskSet[strings.Index(hungTaskSet, "---\n"):])
	for _, c := range []struct {
		args []string
		want []string // each on a separate line
	}{
		{[]string{"-f", broken}, []string{
			broken + ":7:27: spec.adjacencyList[1].to: nodes 1 → 2 → 3 → 1 form a cycle",
			broken + ":12:6: spec.adjacencyList[4].id: node 4: id is 5; want the node's position in the list, counted from 0",
			broken + ":13:5: spec.adjacencyList[5]: node 5: no edge leads to it; only the start, node 0, may have none",
		}},
		{[]string{"-f", lacking}, []string{
			lacking + `:10:13: spec.adjacencyList[4].operation: node 4: operation "page-someone" depends on operation "check-mounts", which does not run on every path to the node`,
		}},
		{[]string{"-f", two}, []string{"kernosis: graph: the files have 2 OperationSets, name one: hung-task, broken"}},
		{[]string{"-f", two, "other"}, []string{`kernosis: graph: unknown OperationSet "other": want one of hung-task, broken`}},
		{[]string{"-f", none}, []string{"kernosis: graph: the files have no OperationSet"}},
		{[]string{"-f", misspelt}, []string{misspelt + ":8:44: spec.adjacencyList[2].dependencies: "}},
		{[]string{"-f", broken, "-o", "png"}, []string{`kernosis: --output: "png": want text, mermaid, dot or svg`}},
		{nil, []string{"kernosis: graph: want a file (-f set.yaml), or --shipped with one of "}},
		{[]string{"-f", filepath.Join(t.TempDir(), "missing.yaml")}, []string{"no such file"}},
	} {
		code, out, errs := graphCommand(t, "", c.args...)
		if code != output.ExitInput || out != "" {
			t.Errorf("%v: exit code %d\n%s", c.args, code, out)
		}
		for _, want := range c.want {
			if !strings.Contains(errs, want) {
				t.Errorf("%v: no %q in\n%s", c.args, want, errs)
			}
		}
	}
}

// A set that can't be run is still drawn, with a note.
func TestGraphOfUnknownOperations(t *testing.T) {
	path := writeSet(t, "set.yaml", `apiVersion: kernosis.io/v1alpha1
kind: OperationSet
metadata: {name: s}
spec:
  adjacencyList:
  - {id: 0, to: [1]}
  - {id: 1, operation: socket}
`)
	code, out, errs := graphCommand(t, "", "-f", path)
	if code != output.ExitOK || !strings.Contains(out, "socket") || !strings.Contains(errs, path+":7:") || !strings.Contains(errs, `did you mean "sockets"?`) || !strings.Contains(errs, "but can't run like this") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}
