package runner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/runner"
)

// childEnv makes the test binary an agent that executes one diagnosis. Unless its value is "none",
// the agent kills itself with SIGKILL at a stage: "saved 3" is the third time it reaches that
// stage.
const childEnv = "KERNOSIS_RUNNER_CHILD"

// stageInside is an additional stage of the child: the operation is running.
const stageInside = "inside"

// killedSet has a refuted cause, and two repairs on the path that succeeds.
func killedSet() []string {
	return []string{": 1", "collect-a: 2 3", "check-b-no:", "check-c: 4", "repair-d: 5", "collect-e: 6", "repair-f: 7", "check-g:"}
}

// killedStates is the result of a run that is not killed.
const killedStates = "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Succeeded, 5 Succeeded, 6 Succeeded, 7 Succeeded"

func isRepair(id int) bool { return id == 4 || id == 6 }

// child executes the diagnosis. It writes what operations do to the file "ran", and the result to
// the file "outcome".
func child() int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	stage, times, _ := strings.Cut(os.Getenv(childEnv), " ")
	n, _ := strconv.Atoi(times)
	var left atomic.Int64
	left.Store(int64(n))
	reach := func(s string) {
		if s == stage && left.Add(-1) == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // nothing more happens in this process
		}
	}
	dir := os.Getenv("CHILD_DIR")
	ran, err := os.OpenFile(filepath.Join(dir, "ran"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fail(err)
	}
	r, err := runner.New(runner.Config{Dir: filepath.Join(dir, "checkpoints"), Gate: allow(), Fault: func(s runner.Stage) { reach(string(s)) }})
	if err != nil {
		return fail(err)
	}
	var s script
	d := s.diagnosis(nil, "a", killedSet()...)
	for id := 1; id < d.Graph.Len(); id++ {
		inner := d.Steps[id].Operation
		d.Steps[id].Operation = runner.Operation{Effect: inner.Effect, Run: func(ctx context.Context, in *runner.Inputs) (operation.Output, error) {
			if _, err := fmt.Fprintln(ran, id); err != nil {
				return operation.Output{}, err
			}
			reach(stageInside)
			reach(fmt.Sprint("inside-", id))
			return inner.Run(ctx, in)
		}}
	}
	rep, err := r.Execute(context.Background(), d)
	if err != nil {
		return fail(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "outcome"), []byte(string(rep.Phase)+": "+states(rep)), 0o600); err != nil {
		return fail(err)
	}
	return 0
}

// runChild runs the child, and reports whether it was killed.
func runChild(t *testing.T, dir, what string) (killed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+what, "CHILD_DIR="+dir)
	out, err := cmd.CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if ok && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return false
}

// ranOf returns the nodes that ran, in order, and the result.
func ranOf(t *testing.T, dir string) (ran []int, outcome string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "ran"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "outcome"))
	if err != nil {
		t.Fatal(err)
	}
	return ints(string(raw)), string(text)
}

func times(ran []int, id int) int {
	n := 0
	for _, r := range ran {
		if r == id {
			n++
		}
	}
	return n
}

// An agent is killed once at each possible point: no repair is made twice, nothing runs after a
// repair with an unknown outcome, and otherwise the result is as if nothing had happened.
func TestKilledInEachStage(t *testing.T) {
	// How often a run reaches each stage, and at which of these times a repair is in progress.
	stages := map[string]struct {
		times   int
		unknown []int // times at which the outcome is Unknown
	}{
		string(runner.StageAllowed):  {2, nil},
		string(runner.StageIntended): {2, nil},
		// Saves: the first; one before each node, with the outcome of the previous one; two more
		// for each repair, before the gate is asked and after the repair; the last.
		string(runner.StageWritten): {13, []int{7, 11}}, // a repair has ended, but its checkpoint is not in place yet
		string(runner.StageSaved):   {13, []int{6, 10}}, // a repair begins
		string(runner.StageBegun):   {7, []int{4, 6}},
		stageInside:                 {7, []int{4, 6}},
		string(runner.StageRan):     {7, []int{4, 6}},
		string(runner.StageNoted):   {7, nil},
		string(runner.StageEnded):   {1, nil},
	}
	for stage, c := range stages {
		t.Run(stage, func(t *testing.T) {
			for n := 1; n <= c.times; n++ {
				if testing.Short() && n != 1 && n != c.times {
					continue // the others are left to make test-all
				}
				dir := memoryDir(t)
				if !runChild(t, dir, fmt.Sprint(stage, " ", n)) {
					t.Fatalf("time %d: not killed", n)
				}
				runChild(t, dir, "none")
				ran, outcome := ranOf(t, dir)
				if n == 1 { // it is reported again, and nothing runs
					runChild(t, dir, "none")
					if again, same := ranOf(t, dir); same != outcome || !slices.Equal(again, ran) {
						t.Errorf("ended %s, then %s", outcome, same)
					}
				}
				total := 0
				for id := 1; id <= 7; id++ {
					k := times(ran, id)
					total += k
					if isRepair(id) && k > 1 || k > 2 {
						t.Errorf("time %d: node %d ran %d times", n, id, k)
					}
				}
				want := "Succeeded: " + killedStates
				if slices.Contains(c.unknown, n) {
					at := 4
					if n == c.unknown[1] {
						at = 6
					}
					states := strings.Split(killedStates, ", ")
					states[at-1] = fmt.Sprint(at, " Unknown")
					want = "Unknown: " + strings.Join(states[:at], ", ")
				} else if total > 8 {
					t.Errorf("time %d: ran %v", n, ran)
				}
				if outcome != want {
					t.Errorf("time %d: %s\nwant %s; ran %v", n, outcome, want, ran)
				}
			}
			if runChild(t, memoryDir(t), fmt.Sprint(stage, " ", c.times+1)) {
				t.Errorf("a run comes there more than %d times", c.times)
			}
		})
	}
}

// The agent is killed repeatedly, at stages without a repair in progress.
func TestKilledManyTimes(t *testing.T) {
	dir := memoryDir(t)
	kills := 0
	for _, what := range []string{
		"written 1", "saved 2", "inside 1", // node 1
		"saved 2", "ran 1", "saved 2", "inside 1", // nodes 2 and 3
		"allowed 1", "intended 1", "allowed 1", "written 1", "noted 1", // node 4 repairs
		"inside 1", "begun 1", "intended 1", "noted 1", // nodes 5 and 6
		"ran 1", "noted 1", "ended 1",
	} {
		if !runChild(t, dir, what) {
			t.Fatalf("%s: not killed", what)
		}
		kills++
	}
	runChild(t, dir, "none")
	ran, outcome := ranOf(t, dir)
	if outcome != "Succeeded: "+killedStates || times(ran, 4) != 1 || times(ran, 6) != 1 || len(ran) > 7+kills {
		t.Errorf("%s, ran %v", outcome, ran)
	}
}

// An operation that kills the agent is not started forever.
func TestAnOperationThatKillsTheAgent(t *testing.T) {
	dir := memoryDir(t)
	for i := range 3 {
		if !runChild(t, dir, "inside-3 1") {
			t.Fatalf("start %d: not killed", i+1)
		}
	}
	if runChild(t, dir, "inside-3 1") {
		t.Fatal("begun a fourth time")
	}
	ran, outcome := ranOf(t, dir)
	if outcome != "Failed: 1 Succeeded, 2 Refuted, 3 Failed" || times(ran, 3) != 3 {
		t.Errorf("%s, ran %v", outcome, ran)
	}
}
