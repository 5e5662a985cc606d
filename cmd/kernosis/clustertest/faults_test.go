package clustertest_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// reported returns when the agent first reported a problem of a rule.
func (a *agent) reported(rule string) time.Time {
	a.t.Helper()
	for _, e := range a.Entries() {
		for _, t := range e.Transitions {
			if t.Problem != nil && t.Problem.Rule == rule && t.Problem.State == problem.Firing {
				return e.Now
			}
		}
	}
	a.t.Fatalf("no problem of %s was reported", rule)
	return time.Time{}
}

// leads waits for the Diagnosis of a fault, and checks its verdict and path.
func (a *agent) leads(t *testing.T, verdict string, path []string, ofIt func(*v1alpha1.Diagnosis) bool) {
	t.Helper()
	a.In(t)
	defer func(outer testing.TB) { a.t = outer }(a.t)
	a.t = t
	d := a.awaitEnd(time.Minute, ofIt)
	// The fault itself may last longer.
	took := d.Status.CompletionTime.Sub(a.reported(d.Spec.Parameters["rule"]))
	t.Logf("%s, known %s after the problem was reported: %+v", d.Name, took.Round(time.Millisecond), d.Status.Verdict)
	if d.Status.Phase != v1alpha1.PhaseSucceeded || d.Status.Verdict == nil || d.Status.Verdict.Reason != verdict {
		t.Errorf("want the verdict %s: %+v", verdict, d.Status)
	}
	var way []string
	for _, id := range d.Status.SucceededPath {
		i := slices.IndexFunc(d.Status.Results, func(r v1alpha1.Result) bool { return r.ID == id })
		if i < 0 {
			t.Fatalf("no result of node %d", id)
		}
		way = append(way, d.Status.Results[i].Operation)
	}
	if !slices.Equal(way, path) {
		t.Errorf("path %q, want %q", way, path)
	}
	if took > testenv.Within(within) {
		t.Errorf("it is known %s after the problem was reported", took)
	}
}

// Each family of faults leads by its shipped Trigger to a Diagnosis in the API server that has its
// cause; OOM kills have a separate test.
func TestFaultsLeadToTheirCauses(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := cluster.Server(t)
	a := newAgent(t, server)
	a.controls(server) // it reports that no policy allows the cordon of a node
	for _, set := range []string{"disk-error", "hung-task", "probe-failure"} {
		a.shipped(set)
	}
	a.Args = append(a.Args, "--hung-task-after", "2s")
	a.Start()
	a.WaitSources(0)
	for _, name := range []string{"disk-error", "hung-task", "probe-failure"} {
		a.knows(name)
	}
	of := func(trigger, parameter, value string) func(*v1alpha1.Diagnosis) bool {
		return func(d *v1alpha1.Diagnosis) bool {
			return d.Labels[v1alpha1.LabelTrigger] == trigger && d.Spec.Parameters[parameter] == value
		}
	}

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
		a.leads(t, "DiskFailing", []string{"disk-errors", "disk-identity", "pod-list", "smart", "check-disk-failing", "cordon"}, of("disk-error", "device", device))
	})
	t.Run("hung task", func(t *testing.T) {
		fault := &inject.FSFreeze{StateDir: t.TempDir()}
		hang, err := fault.Start(t.Context())
		agenttest.Injected(t, err)
		defer fault.Close()
		a.leads(t, "FilesystemFrozen", []string{"blocked-stacks", "kmsg-tail", "check-filesystem-frozen"}, of("hung-task", "pid", strconv.Itoa(hang.Waiter.TID)))
	})
	t.Run("accept queue full", func(t *testing.T) {
		if _, err := a.FailProbes(t, inject.ProbeQueueFull); err != nil {
			agenttest.Injected(t, err)
		}
		a.leads(t, "AcceptQueueFull", []string{"re-probe", "check-accept-queue-full", "sockets"}, func(d *v1alpha1.Diagnosis) bool {
			return d.Labels[v1alpha1.LabelTrigger] == "probe-failure" && strings.Contains(d.Spec.Parameters["message"], "accept-queue-full")
		})
	})
	a.Stop()
}
