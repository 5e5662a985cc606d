package diagnosetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// within is how long a Diagnosis may take after its fault was reported.
const within = 5 * time.Second

// expect waits for a Diagnosis, and checks its results.
func expect(t *testing.T, a *agenttest.Agent, set, about, verdict, path string, excluded ...string) {
	t.Helper()
	d := a.WaitDiagnosis(t, set, 30*time.Second, func(d *console.Diagnosis) bool {
		return d.OperationSet == set && (strings.Contains(d.Subject, about) || d.Verdict != nil && strings.Contains(d.Verdict.Message, about))
	})
	t.Logf("%s after %s: %+v", d.Name, d.After, d.Verdict)
	if d.Phase != "Succeeded" || d.Verdict == nil || d.Verdict.Reason != verdict || d.Trigger == "" {
		t.Errorf("%+v, want the verdict %s", d, verdict)
	}
	if got := strings.Join(d.Path, " "); got != path {
		t.Errorf("path %s, want %s", got, path)
	}
	for _, want := range excluded {
		if !slices.ContainsFunc(d.Excluded, func(c console.Cause) bool { return c.Reason == want }) {
			t.Errorf("%s is not excluded: %+v", want, d.Excluded)
		}
	}
	if d.After <= 0 || d.After > testenv.Within(within) {
		t.Errorf("it took %s from the problem to the end, want at most %s", d.After, within)
	}
	same := 0
	for _, other := range a.Diagnoses() {
		if other.Name == d.Name {
			same++
		}
	}
	if same != 1 {
		t.Errorf("%s has ended %d times", d.Name, same)
	}
}

// Each fault leads by a shipped Trigger to a Diagnosis that finds its cause.
func TestFaultsAreDiagnosed(t *testing.T) {
	a := newAgent(t, "--hung-task-after", "2s")
	a.Start()
	a.WaitSources(0)

	t.Run("disk error", func(t *testing.T) {
		fault := &inject.DiskError{Kind: inject.DiskWrite, StateDir: t.TempDir()}
		agenttest.Injected(t, fault.Start(t.Context()))
		defer fault.Close()
		for range 4 {
			if _, ioErr, err := fault.Fail(); ioErr == nil || err != nil {
				t.Fatal(ioErr, err)
			}
		}
		device, _ := fault.Device()
		expect(t, a, "disk-error", device, "DiskFailing", "disk-errors disk-identity smart check-disk-failing cordon")
	})
	t.Run("OOM kill", func(t *testing.T) {
		fault := &inject.OOM{StateDir: t.TempDir()}
		agenttest.Injected(t, fault.Start(t.Context()))
		defer fault.Close()
		if _, err := fault.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, a, "oom-kill", base(fault.Cgroup()), "LimitTooLow", "oom-kill-log cgroup-memory check-limit-too-low", "NodeHasMemory", "MemoryDoesNotGrow")
	})
	t.Run("hung task", func(t *testing.T) {
		fault := &inject.FSFreeze{StateDir: t.TempDir()}
		hang, err := fault.Start(t.Context())
		agenttest.Injected(t, err)
		defer fault.Close()
		expect(t, a, "hung-task", fmt.Sprintf("%s[%d]", hang.Waiter.Comm, hang.Waiter.TID), "FilesystemFrozen",
			"blocked-stacks kmsg-tail check-filesystem-frozen", "NoDiskStalled", "NoNFSMount")
	})
	t.Run("accept queue full", func(t *testing.T) {
		if _, err := a.FailProbes(t, inject.ProbeQueueFull); err != nil {
			agenttest.Injected(t, err)
		}
		expect(t, a, "probe-failure", "accept-queue-full", "AcceptQueueFull", "re-probe check-accept-queue-full sockets",
			"RoutePresent", "NeighbourPresent", "ListenerPresent")
	})
}

// base returns the last element of a cgroup's path.
func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
