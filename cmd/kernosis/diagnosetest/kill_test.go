package diagnosetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// slow replaces the shipped set by one whose second operation is slow.
const slow = `apiVersion: kernosis.io/v1alpha1
kind: OperationSet
metadata: {name: slow}
spec:
  adjacencyList:
  - {id: 0, to: [1]}
  - {id: 1, operation: kernel-facts, to: [2]}
  - {id: 2, operation: slow-memory, to: [3]}
  - {id: 3, operation: check-limit-too-low}
---
apiVersion: kernosis.io/v1alpha1
kind: Operation
metadata: {name: slow-memory}
spec: {processor: {builtin: {name: cgroup-memory, parameters: {window: 3s}}}}
---
apiVersion: kernosis.io/v1alpha1
kind: Trigger
metadata: {name: oom-kill}
spec:
  operationSet: slow
  parameters: {window: 200ms}
  sourceTemplate: {problemTemplate: {rules: [oom-kill]}}
`

// killed starts an agent with the slow set, has a process OOM-killed, and returns agent and fault.
func killed(t *testing.T) (*agenttest.Agent, *inject.OOM) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "slow.yaml"), []byte(slow), 0o600); err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, "--diagnose-dir", dir)
	fault := &inject.OOM{StateDir: t.TempDir()}
	agenttest.Injected(t, fault.Start(t.Context()))
	t.Cleanup(func() { fault.Close() })
	a.Start()
	a.WaitSources(0)
	if _, err := fault.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	return a, fault
}

// ended waits for the Diagnosis of a fault and checks that there is only one, which has succeeded.
func ended(t *testing.T, a *agenttest.Agent, fault *inject.OOM) *runner.Saved {
	t.Helper()
	d := a.WaitDiagnosis(t, "oom", 40*time.Second, func(d *console.Diagnosis) bool { return strings.Contains(d.Subject, base(fault.Cgroup())) })
	if got := strings.Join(d.Path, " "); d.Phase != "Succeeded" || d.Verdict == nil || d.Verdict.Reason != "LimitTooLow" || got != "kernel-facts slow-memory check-limit-too-low" {
		t.Errorf("%+v by %s", d, got)
	}
	root := filepath.Join(a.State, "diagnose")
	ids, err := runner.SavedIDs(worker.Checkpoints(root))
	if err != nil || len(ids) != 1 || ids[0] != d.Name || len(a.Diagnoses()) != 1 {
		t.Errorf("runs %v (%v), %d reported", ids, err, len(a.Diagnoses()))
	}
	saved, err := runner.ReadSaved(worker.Checkpoints(root), d.ID)
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

// If an agent is killed while an operation runs, the next agent continues with that operation: the
// results of ended ones are kept, and there is one Diagnosis.
func TestKilledDuringAnOperation(t *testing.T) {
	testenv.OnlyInTestAll(t)
	a, fault := killed(t)
	checkpoints := worker.Checkpoints(filepath.Join(a.State, "diagnose"))
	var first time.Time
	testenv.Until(t, "the slow operation begins", 20*time.Second, func() bool {
		ids, _ := runner.SavedIDs(checkpoints)
		for _, id := range ids {
			if s, err := runner.ReadSaved(checkpoints, id); err == nil && s.Report.Running == 2 {
				first = s.Report.Records[0].Start
			}
		}
		return !first.IsZero()
	})
	a.Kill()
	if n := len(a.Diagnoses()); n != 0 {
		t.Fatalf("%d have ended", n)
	}
	a.Start()
	saved := ended(t, a, fault)
	if r := saved.Report.Records[0]; !r.Start.Equal(first) {
		t.Errorf("the first operation ran again: %s, then %s", first, r.Start)
	}
}

// If an agent is killed between the fault and the first operation, there is one Diagnosis: what it
// had not saved is replayed from the journal.
func TestKilledAtOnce(t *testing.T) {
	testenv.OnlyInTestAll(t)
	for name, moment := range map[string]func(t *testing.T, a *agenttest.Agent){
		"anywhere": func(*testing.T, *agenttest.Agent) {},
		"as soon as the problem is reported": func(t *testing.T, a *agenttest.Agent) {
			a.WaitIn(t, "kill", 20*time.Second, func(entries []journal.Entry) bool {
				return len(agenttest.States(entries, "oom-kill", func(*problem.Problem) bool { return true })) > 0
			})
		},
		"as soon as the diagnosis is on the disk": func(t *testing.T, a *agenttest.Agent) {
			pattern := filepath.Join(a.State, "diagnose", "taken", "*.json")
			testenv.Until(t, "it is written down", 20*time.Second, func() bool {
				found, _ := filepath.Glob(pattern)
				return len(found) > 0
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, fault := killed(t)
			moment(t, a)
			a.Kill()
			a.Start()
			ended(t, a, fault)
			a.Stop()
		})
	}
}

// While an agent runs, a person can run Diagnoses too, and sees those of both.
func TestRunByHandBesideAnAgent(t *testing.T) {
	testenv.OnlyInTestAll(t)
	a, fault := killed(t)
	code, out := kernosis(t, "diagnose", "run", "--shipped", "disk-error", "--id", "by-hand", "--state-dir", a.State)
	if code > 1 || !strings.Contains(out, "run by-hand\n") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	ended(t, a, fault)
	own := a.Diagnoses()[0].ID
	if code, out := kernosis(t, "diagnose", "show", "--state-dir", a.State); code != 0 || !strings.Contains(out, "by-hand ") || !strings.Contains(out, own+" ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if code, out := kernosis(t, "diagnose", "show", own, "--state-dir", a.State); code != 0 || !strings.Contains(out, "VERDICT   LimitTooLow: ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if code, out := kernosis(t, "diagnose", "run", "--shipped", "disk-error", "--id", own, "--state-dir", a.State); code != 2 || !strings.Contains(out, "belongs to the running agent") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
