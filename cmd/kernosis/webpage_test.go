package main

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/page"
	"github.com/kernosis/kernosis/vmtest/await"
)

// A run in the state folder is on the page with its steps, what it would have repaired, and its graph.
func TestRunsOnThePage(t *testing.T) {
	h, state := newHook(t), t.TempDir()
	path := writeSet(t, "set.yaml", setOfDemo(h.port))
	if code, out, errs := diagnoseCommand(t.Context(), "run", "-f", path, "-p", "subject=pg", "--node", "n7", "--id", "d1", "--state-dir", state); code != exitOK {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	// As if an agent had the first folder.
	agents, byHand, moved := dirOf(state), dirByHand(state), filepath.Join(state, "moved")
	if err := errors.Join(os.Rename(agents, moved), os.MkdirAll(agents, 0o700), os.Rename(moved, byHand)); err != nil {
		t.Fatal(err)
	}
	d := &pageDiagnoses{stateDir: state}
	list, all, err := d.list(10)
	if err != nil || all != 1 || len(list) != 1 {
		t.Fatalf("%d of %d, %v", len(list), all, err)
	}
	got := list[0]
	if got.Started.IsZero() || got.Ended.Before(got.Started) || got.Steps[0].Took <= 0 {
		t.Errorf("times of %+v", got)
	}
	got.Started, got.Ended = time.Time{}, time.Time{}
	for i := range got.Steps {
		got.Steps[i].Took = 0
	}
	const none = "NoKnownLockHolder"
	const why = "no holder of a lock was given: the task waits for none that the kernel records"
	want := page.Diagnosis{
		ID: "d1", Name: "d1", Subject: "pg", Phase: "Succeeded", Message: "No verdict: the operations of the path only look.",
		Excluded: []page.Cause{{Reason: none, Message: why}}, Path: "1 ask → 3 mend", Graph: true,
		Steps: []page.Step{
			{ID: 1, Operation: "ask", Effect: "Collect", Result: "done", Text: `found="two words"`, OnPath: true},
			{ID: 2, Operation: "check-lock-holder", Effect: "Check", Result: "no", Text: none + ": " + why},
			{ID: 3, Operation: "mend", Effect: "Remediate", Result: "would run", Text: "ObserveOnly: --allow-repairs lets it run", OnPath: true},
		},
		Repairs: []string{"mend: would run: --allow-repairs lets it run"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	svg, err := d.drawing("d1")
	if err != nil || !strings.Contains(string(svg), "WouldRun") {
		t.Errorf("%s, %v", svg, err)
	}
	for _, id := range []string{"d2", "../d1", "by-hand/checkpoints/d1", ""} {
		if _, err := d.drawing(id); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("drawing of %q: %v", id, err)
		}
	}
	if err := os.WriteFile(runner.SavedPath(worker.Checkpoints(byHand), "d1"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, _, err = d.list(10); err != nil || list[0].Phase != "Unreadable" || list[0].Message == "" {
		t.Errorf("damaged: %+v, %v", list, err)
	}
	if list, all, err = d.list(0); err != nil || len(list) != 0 || all != 1 || len(d.read) != 0 {
		t.Errorf("none wanted: %d of %d, %v, %d kept", len(list), all, err, len(d.read))
	}
}

// waits is a gate that never decides.
type waits struct{}

func (waits) Allow(context.Context, *runner.Action) (runner.Decision, error) {
	return runner.Decision{Verb: v1alpha1.RemediationWait, Reason: "AwaitingDecision", Message: "of the controller"}, nil
}

func TestAWaitingRunOnThePage(t *testing.T) {
	state := t.TempDir()
	r, err := runner.New(runner.Config{Dir: worker.Checkpoints(dirByHand(state)), Gate: waits{}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := graph.Build([]graph.Node{{ID: 0, To: []int{1}}, {ID: 1, Operation: "mend"}})
	if err != nil {
		t.Fatal(err)
	}
	mend := runner.Func(operation.Remediate, nil)
	if _, err := r.Execute(t.Context(), &runner.Diagnosis{ID: "d1", Node: "n7", Graph: g, Steps: []runner.Step{{}, {Operation: mend}}}); err != nil {
		t.Fatal(err)
	}
	list, _, err := (&pageDiagnoses{stateDir: state}).list(10)
	if err != nil || len(list) != 1 || list[0].Message != "Waits: AwaitingDecision: of the controller" {
		t.Errorf("%+v, %v", list, err)
	}
	if _, out, errs := diagnoseCommand(t.Context(), "show", "d1", "--state-dir", state); !strings.Contains(out, "WAITS     node 1: AwaitingDecision: of the controller\n") {
		t.Errorf("%s%s", out, errs)
	}
}

// A real kill is announced on the stream, and shown.
func TestTheAgentsPage(t *testing.T) {
	needKernel(t)
	ctx, cancel := context.WithTimeout(t.Context(), await.Within(time.Minute))
	defer cancel()
	p := newAgent(t, "--listen", "127.0.0.1:0")
	p.Start()
	p.WaitSources(0)
	url := p.Log.URL(t)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	oom := &inject.OOM{StateDir: t.TempDir()}
	if err := oom.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer oom.Close()
	if _, err := oom.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	shown := func() bool {
		status, body := get(t, url+"/")
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		// In the problems and in the timeline.
		return strings.Count(body, filepath.Base(oom.Cgroup())) >= 2 && strings.Contains(body, `<a href="problems/OOMKilling">`)
	}
	for lines := bufio.NewScanner(stream.Body); !shown(); {
		for lines.Scan() && lines.Text() != "event: changed" { //nolint:revive // it waits for one
		}
		if ctx.Err() != nil || lines.Err() != nil {
			t.Fatalf("the kill is not shown: %v, %v", ctx.Err(), lines.Err())
		}
	}
	p.Stop()
	if _, err := bufio.NewReader(stream.Body).ReadString('\x00'); err == nil {
		t.Error("the stream goes on")
	}
}

// While Diagnoses are read from a disk that hangs, the page does not wait to forget them: it
// would answer nobody.
func TestPageForgetsWithoutWaiting(t *testing.T) {
	d := &pageDiagnoses{read: map[string]readRun{"a": {}}}
	d.mu.Lock() // as list has it while it reads
	d.forget()
	d.mu.Unlock()
	if d.forget(); d.read != nil {
		t.Error("nothing was forgotten")
	}
}
