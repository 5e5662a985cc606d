package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/diagnose/worker"
)

// diagnoseCommand runs "kernosis diagnose" in this process and returns what it wrote.
func diagnoseCommand(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	root := newRoot()
	root.SetArgs(append([]string{"diagnose"}, args...))
	root.SetIn(strings.NewReader(""))
	root.SetOut(&out)
	root.SetErr(&errs)
	code = exitCode(root.ExecuteContext(ctx), &errs)
	return code, out.String(), errs.String()
}

// steady replaces the parts of an output that differ from run to run.
func steady(text, state string) string {
	text = strings.ReplaceAll(text, state, "STATE")
	for pattern, by := range map[string]string{
		` +(\d+(\.\d+)?(µs|ms|s))+  `:    "  TIME  ",
		`took [0-9.]+(µs|ms|s)`:          "took TIME",
		`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`: "DATE",
		`127.0.0.1:\d+`:                  "127.0.0.1:PORT",
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, by)
	}
	return text
}

// hook is a web server that implements an operation. It counts requests.
type hook struct {
	asked  atomic.Int64
	answer func(w http.ResponseWriter, r *http.Request)
	port   uint16
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"found":"two words"}`) }}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.asked.Add(1)
		h.answer(w, r)
	}))
	t.Cleanup(s.Close)
	h.port = netip.MustParseAddrPort(s.Listener.Addr().String()).Port()
	return h
}

// setOfDemo returns an OperationSet that collects, checks a cause, and repairs.
func setOfDemo(port uint16) string {
	return fmt.Sprintf(`apiVersion: kernosis.io/v1alpha1
kind: OperationSet
metadata: {name: demo}
spec:
  adjacencyList:
  - {id: 0, to: [1]}
  - {id: 1, operation: ask, to: [2, 3]}
  - {id: 2, operation: check-lock-holder}
  - {id: 3, operation: mend}
---
apiVersion: kernosis.io/v1alpha1
kind: Operation
metadata: {name: ask}
spec:
  effect: Collect
  processor: {httpServer: {port: %d}}
---
apiVersion: kernosis.io/v1alpha1
kind: Operation
metadata: {name: mend}
spec:
  processor: {httpServer: {port: %d, path: /mend}}
`, port, port)
}

const ranDemo = `demo on n7, run d1
  1  ask                done  TIME  found="two words"
  2  check-lock-holder  no  TIME  NoKnownLockHolder: no lock holder was given: the task waits for no lock whose holder the kernel records
  3  mend               would run       -  ObserveOnly: run it with --allow-repairs

VERDICT   none: no operation on the path checks for a cause
PATH      1 ask → 3 mend
NOT       NoKnownLockHolder: no lock holder was given: the task waits for no lock whose holder the kernel records
WOULD RUN mend: run it with --allow-repairs
`

const shownDemo = `run d1, started DATE, took TIME
parameters: subject=pg
  1  ask                done  TIME  found="two words"
  2  check-lock-holder  no  TIME  NoKnownLockHolder: no lock holder was given: the task waits for no lock whose holder the kernel records
  3  mend               would run       -  ObserveOnly: run it with --allow-repairs

VERDICT   none: no operation on the path checks for a cause
PATH      1 ask → 3 mend
NOT       NoKnownLockHolder: no lock holder was given: the task waits for no lock whose holder the kernel records
WOULD RUN mend: run it with --allow-repairs

d1: 4 nodes, 3 edges, 2 paths

* 0  start              → 1
* 1  ask                → 2, 3         Collect · Succeeded
  2  check-lock-holder  end of a path  Check · Refuted
* 3  mend               end of a path  Remediate · WouldRun

Paths, in the order in which they are tried:
  1 ask → 2 check-lock-holder
  1 ask → 3 mend
`

func TestDiagnoseRunAndShow(t *testing.T) {
	h, state := newHook(t), t.TempDir()
	path := writeSet(t, "set.yaml", setOfDemo(h.port))
	run := []string{"run", "-f", path, "-p", "subject=pg", "--node", "n7", "--id", "d1", "--state-dir", state}
	code, out, errs := diagnoseCommand(t.Context(), run...)
	if diff := cmp.Diff(ranDemo, steady(out, state)); code != output.ExitOK || diff != "" || errs != "" {
		t.Errorf("exit code %d\n%s%s", code, diff, errs)
	}
	// The run has ended: it is shown again, and nothing runs.
	code, out, _ = diagnoseCommand(t.Context(), run...)
	if diff := cmp.Diff(ranDemo, steady(out, state)); code != output.ExitOK || diff != "" || h.asked.Load() != 1 {
		t.Errorf("exit code %d, asked %d times\n%s", code, h.asked.Load(), diff)
	}
	code, out, errs = diagnoseCommand(t.Context(), "show", "d1", "--state-dir", state)
	if diff := cmp.Diff(shownDemo, steady(out, state)); code != output.ExitOK || diff != "" || errs != "" {
		t.Errorf("exit code %d\n%s%s", code, diff, errs)
	}
	for form, want := range map[string][]string{
		"svg": {"<svg xmlns=", "WouldRun"}, "mermaid": {"---\ntitle: \"d1\"", "check-lock-holder"}, "dot": {"digraph {", "Refuted"},
	} {
		code, out, errs := diagnoseCommand(t.Context(), "show", "d1", "--state-dir", state, "-o", form)
		if code != output.ExitOK || !strings.HasPrefix(out, want[0]) || !strings.Contains(out, want[1]) || errs != "" {
			t.Errorf("%s: exit code %d\n%s%s", form, code, out, errs)
		}
	}
	code, out, _ = diagnoseCommand(t.Context(), "show", "--state-dir", state)
	if got := strings.Join(strings.Fields(steady(out, state)), " "); code != output.ExitOK || !regexp.MustCompile(`^RUN STARTED TOOK FILES RESULT d1 DATE \S+ 0 Succeeded \(PathSucceeded\)$`).MatchString(got) {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestDiagnoseAsJSON(t *testing.T) {
	h, state := newHook(t), t.TempDir()
	path := writeSet(t, "set.yaml", setOfDemo(h.port))
	code, out, errs := diagnoseCommand(t.Context(), "run", "-f", path, "-p", "subject=pg", "--node", "n7", "--id", "d1", "--state-dir", state, "-o", "json")
	if code != output.ExitOK || errs != "" {
		t.Fatalf("exit code %d\n%s", code, errs)
	}
	read := func(out string) runDocument {
		var d runDocument
		if err := json.Unmarshal([]byte(out), &d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := read(out)
	if d.ID != "d1" || d.OperationSet != "demo" || d.Node != "n7" || d.Reason != "PathSucceeded" || d.Parameters["subject"] != "pg" || len(d.Graph) != 4 {
		t.Errorf("%s", out)
	}
	s := d.Status
	if s.Phase != "Succeeded" || len(s.SucceededPath) != 2 || len(s.Results) != 3 || s.Results[0].Values["found"] != "two words" || s.Action != "mend (would)" ||
		len(d.Excluded) != 1 || d.Excluded[0].Reason != "NoKnownLockHolder" || d.Excluded[0].Operation != "check-lock-holder" {
		t.Errorf("%s", out)
	}
	_, out, _ = diagnoseCommand(t.Context(), "show", "d1", "--state-dir", state, "-o", "json")
	shown := read(out)
	shown.OperationSet, shown.Node = d.OperationSet, d.Node // not saved in the checkpoint
	if diff := cmp.Diff(d, shown); diff != "" {
		t.Error(diff)
	}
	var list []runDocument
	if _, out, _ = diagnoseCommand(t.Context(), "show", "--state-dir", state, "-o", "json"); json.Unmarshal([]byte(out), &list) != nil || len(list) != 1 || list[0].ID != "d1" {
		t.Errorf("%s", out)
	}
}

func TestARepairRunsOnlyIfItIsAllowed(t *testing.T) {
	h, state := newHook(t), t.TempDir()
	var mended atomic.Bool
	h.answer = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mend" {
			mended.Store(true)
		}
		fmt.Fprint(w, `{}`)
	}
	path := writeSet(t, "set.yaml", setOfDemo(h.port))
	if code, out, _ := diagnoseCommand(t.Context(), "run", "-f", path, "--state-dir", state); code != output.ExitOK || mended.Load() {
		t.Errorf("exit code %d, repaired %v\n%s", code, mended.Load(), out)
	}
	code, out, errs := diagnoseCommand(t.Context(), "run", "-f", path, "--state-dir", state, "--allow-repairs")
	if code != output.ExitOK || !mended.Load() || !strings.Contains(out, "\nDONE      mend\n") || errs != "" {
		t.Errorf("exit code %d, repaired %v\n%s%s", code, mended.Load(), out, errs)
	}
}

// A run whose checkpoint is damaged may have made a repair. It does not start over, even with a graph
// without repairs: that run could be interrupted and continued with the first graph.
func TestADamagedRunDoesNotStartOver(t *testing.T) {
	h, state := newHook(t), t.TempDir()
	set := setOfDemo(h.port)
	run := func(set string) (code int, out string) {
		code, out, errs := diagnoseCommand(t.Context(), "run", "-f", writeSet(t, "set.yaml", set), "--id", "d1", "--state-dir", state, "--allow-repairs")
		return code, out + errs
	}
	if code, out := run(set); code != output.ExitOK || h.asked.Load() != 2 {
		t.Fatalf("exit code %d, %d requests\n%s", code, h.asked.Load(), out)
	}
	path := filepath.Join(worker.Checkpoints(agent.RunsDir(state)), "d1.checkpoint")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	without := strings.NewReplacer("to: [2, 3]", "to: [2]", "  - {id: 3, operation: mend}\n", "").Replace(set)
	for name, set := range map[string]string{"the same set": set, "without its repair": without} {
		if code, out := run(set); code == output.ExitOK || !strings.Contains(strings.Join(strings.Fields(out), " "), "not a checkpoint of a diagnosis") || h.asked.Load() != 2 {
			t.Errorf("%s: exit code %d, %d requests\n%s", name, code, h.asked.Load(), out)
		}
	}
}

func TestDiagnoseFailsWhereNoPathSucceeds(t *testing.T) {
	h, state := newHook(t), t.TempDir()
	h.answer = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", http.StatusTeapot) }
	path := writeSet(t, "set.yaml", setOfDemo(h.port))
	code, out, errs := diagnoseCommand(t.Context(), "run", "-f", path, "--id", "d1", "--state-dir", state)
	if code != output.ExitFailed || errs != "" || !strings.Contains(out, "VERDICT   none: no checked cause applies\n") ||
		!strings.Contains(out, "FAILED    ask: POST http://127.0.0.1:") || !strings.Contains(out, "status 418") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	// A check that fails to look excludes no cause.
	blind := writeSet(t, "blind.yaml", `apiVersion: kernosis.io/v1alpha1
kind: OperationSet
metadata: {name: blind}
spec: {adjacencyList: [{id: 0, to: [1]}, {id: 1, operation: check-limit-too-low}]}
`)
	code, out, _ = diagnoseCommand(t.Context(), "run", "-f", blind, "--state-dir", state, "-p", "cgroup=/no/such/group")
	if code != output.ExitFailed || !strings.Contains(out, "VERDICT   none: no cause found, but some could not be checked\n") ||
		!strings.Contains(out, "UNKNOWN   check-limit-too-low failed: ") || strings.Contains(out, "NOT  ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestAScriptRunsIfItIsAllowed(t *testing.T) {
	needKernel(t)
	path := writeSet(t, "set.yaml", `apiVersion: kernosis.io/v1alpha1
kind: OperationSet
metadata: {name: scripts}
spec: {adjacencyList: [{id: 0, to: [1]}, {id: 1, operation: hello}]}
---
apiVersion: kernosis.io/v1alpha1
kind: Operation
metadata: {name: hello}
spec:
  effect: Collect
  processor: {scriptRunner: {argKeys: [who], operationResultKey: x, script: 'echo "hello $1"; while read key uid rest; do [ $key != Uid: ] || echo $uid; done </proc/self/status'}}
`)
	code, out, errs := diagnoseCommand(t.Context(), "run", "-f", path, "--state-dir", t.TempDir(), "--allow-scripts", "-p", "who=world")
	if strings.Contains(out, "their own control groups") {
		t.Skip("no control groups for scripts can be made here")
	}
	if code != output.ExitOK || !strings.Contains(out, `operation.x.output="hello world\n65534\n"`) || errs != "" {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	code, _, errs = diagnoseCommand(t.Context(), "run", "-f", path, "--state-dir", t.TempDir(), "--allow-scripts")
	if code != output.ExitInput || !strings.Contains(errs, "parameter who is required by node 1 (hello)") {
		t.Errorf("exit code %d\n%s", code, errs)
	}
}

func TestOldRunsAreRemoved(t *testing.T) {
	h, state := newHook(t), t.TempDir()
	path := writeSet(t, "set.yaml", setOfDemo(h.port))
	for _, id := range []string{"d1", "d2", "d3"} {
		if code, out, errs := diagnoseCommand(t.Context(), "run", "-f", path, "--id", id, "--keep", "2", "--state-dir", state); code != output.ExitOK {
			t.Fatal(out, errs)
		}
	}
	if err := os.WriteFile(filepath.Join(worker.Checkpoints(agent.RunsDir(state)), "bad.checkpoint"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, _ := diagnoseCommand(t.Context(), "show", "--state-dir", state)
	if code != output.ExitOK || strings.Contains(out, "d1 ") || !strings.Contains(out, "d2 ") || !strings.Contains(out, "d3 ") || !strings.Contains(out, "not a checkpoint of a diagnosis") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if code, out, _ := diagnoseCommand(t.Context(), "show", "--state-dir", t.TempDir()); code != output.ExitOK || out != "no runs; start one with kernosis diagnose run\n" {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// Operations that change API objects are reported, and refused when a run would execute them.
func TestDiagnoseRunMakesNothingOfTheController(t *testing.T) {
	path := writeSet(t, "set.yaml", `apiVersion: kernosis.io/v1alpha1
kind: OperationSet
metadata: {name: stop}
spec:
  adjacencyList:
  - {id: 0, to: [1]}
  - {id: 1, operation: kernel-facts, to: [2]}
  - {id: 2, operation: cordon}
`)
	state := t.TempDir()
	code, out, errs := diagnoseCommand(t.Context(), "run", "-f", path, "--state-dir", state, "--allow-repairs")
	if code != output.ExitInput || !strings.Contains(errs, "node 2 (cordon) changes API objects, which only the controller of a cluster does") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	code, out, errs = diagnoseCommand(t.Context(), "run", "-f", path, "--state-dir", state)
	if code != output.ExitOK || !strings.Contains(out, "WOULD RUN cordon: only the controller of a cluster runs it") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	if code, out, errs := graphCommand(t, "", "-f", path); code != output.ExitOK || !strings.Contains(out, "Remediate") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}
