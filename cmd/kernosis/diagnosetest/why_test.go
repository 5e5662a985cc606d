package diagnosetest

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/why"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// asPlugin runs kernosis as kubectl does.
func asPlugin(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	return calledAs(t, "kubectl-kernosis", args...)
}

// calledAs runs kernosis by another name, without a cluster.
func calledAs(t *testing.T, name string, args ...string) (code int, out string) {
	t.Helper()
	path := agenttest.Program(t)
	link := filepath.Join(filepath.Dir(path), name)
	if err := os.Symlink(filepath.Base(path), link); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), link, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG=", "HOME="+t.TempDir())
	text, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

// why answers from the journal of a running agent, after real faults: for its node, and for a pod by
// its UID.
func TestWhy(t *testing.T) {
	testenv.OnlyInTestAll(t)
	const uid = "4a1f7c52-8f1e-4d0c-9a55-0d6f2f6b1c11"
	a := newAgent(t)
	a.Start()
	a.WaitSources(0)

	// Nothing has happened yet.
	code, out := asPlugin(t, "why", "pod", uid, "--journal", a.State)
	if code != 1 && code != 3 || !strings.Contains(out, "CAUSE   none known") || !strings.Contains(out, "READ    journal in") {
		t.Errorf("exit code %d\n%s", code, out)
	}

	fault := &inject.OOM{StateDir: t.TempDir()}
	agenttest.Injected(t, fault.Start(t.Context()))
	defer fault.Close()
	if _, err := fault.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.WaitDiagnosis(t, "oom-kill", 30*time.Second, func(d *console.Diagnosis) bool { return d.OperationSet == "oom-kill" })
	code, out = kernosis(t, "why", "node", "--journal", a.State)
	wants(t, code, out, 0, "CAUSE   LimitTooLow: ", "LED TO  kn-oom-child[", base(fault.Cgroup()), "OOMKilling", "NOT     NodeHasMemory", "docs/problems/OOMKilling", "found LimitTooLow by oom-kill-log, cgroup-memory, check-limit-too-low")

	pod := agenttest.PodGroup(t, uid, 24<<20)
	agenttest.KillIn(t, pod)
	a.WaitIn(t, "kill in the pod", 20*time.Second, func(entries []journal.Entry) bool {
		for _, e := range entries {
			for _, tr := range e.Transitions {
				if tr.Problem != nil && tr.Problem.Rule == "oom-kill" && tr.Problem.State == problem.Firing && tr.Problem.Pod == uid {
					return true
				}
			}
		}
		return false
	})
	code, out = asPlugin(t, "why", "pod", uid, "--journal", a.State)
	wants(t, code, out, 0, "pod "+uid, "killed at its limit of 24 MiB", "24 MiB used of the 24 MiB limit", "NOT ", "DO      Own limit: ")

	end, err := a.FailProbes(t, inject.ProbeQueueFull)
	agenttest.Injected(t, err)
	a.WaitDiagnosis(t, "probe-failure", 30*time.Second, func(d *console.Diagnosis) bool { return d.OperationSet == "probe-failure" })
	end()
	code, out = kernosis(t, "why", "node", "--journal", a.State, "-o", "json")
	var answer why.Answer
	if err := json.Unmarshal([]byte(out), &answer); err != nil || code != 0 || answer.Outcome != why.Found {
		t.Fatalf("exit code %d, %v\n%s", code, err, out)
	}
	for _, want := range []string{"LimitTooLow", "AcceptQueueFull"} {
		at := slices.IndexFunc(answer.Causes, func(c why.Cause) bool { return c.Reason == want })
		if at < 0 || answer.Causes[at].Diagnosis == "" || len(answer.Causes[at].Effects) == 0 {
			t.Errorf("%s: %s", want, out)
		}
	}
	if len(answer.Not) < 3 || len(answer.Do) == 0 {
		t.Errorf("%s", out)
	}
	// A pod with another UID was not affected.
	code, out = asPlugin(t, "why", "pod", strings.Replace(uid, "4a1f", "5b2f", 1), "--journal", a.State)
	if code != 1 && code != 3 || !strings.Contains(out, "none known") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	// A name that the journal does not know.
	code, out = asPlugin(t, "why", "pod", "-n", "shop", "web-1", "--journal", a.State)
	wants(t, code, out, 3, "UNREAD  which UID shop/web-1 has")
	// kubectl asks a program of this name for completions.
	if code, out := calledAs(t, "kubectl_complete-kernosis", "why", ""); code != 0 || !strings.Contains(out, "pod\t") || !strings.Contains(out, "node\t") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if code, out := asPlugin(t, "why", "pod", "--help"); code != 0 || !strings.Contains(out, "kubectl kernosis why pod [NAMESPACE/]NAME") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	for _, wrong := range [][]string{
		{"why", "pod"}, {"why", "pod", "/x"}, {"why", "pod", "x", "-o", "xml"}, {"why", "node", "--journal", t.TempDir()},
		{"why", "node", "--state-dir", t.TempDir()}, {"why", "pod", "shop/web-1", "--kubeconfig", "/nonexistent"},
	} {
		if code, out := asPlugin(t, wrong...); code != 2 || out == "" {
			t.Errorf("%q: exit code %d\n%s", wrong, code, out)
		}
	}
}

func wants(t *testing.T, code int, out string, wantCode int, all ...string) {
	t.Helper()
	t.Log("\n" + out)
	for _, want := range all {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if code != wantCode {
		t.Errorf("exit code %d, want %d\n%s", code, wantCode, out)
	}
}
