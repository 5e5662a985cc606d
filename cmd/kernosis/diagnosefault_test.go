package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// diagnosed runs a shipped set on a real fault.
func diagnosed(t *testing.T, state, set string, parameters ...string) *runDocument {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(time.Minute))
	defer cancel()
	args := []string{"run", "--shipped", set, "--state-dir", state, "-o", "json"}
	for _, p := range parameters {
		args = append(args, "-p", p)
	}
	code, out, errs := diagnoseCommand(ctx, args...)
	var d runDocument
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("exit code %d: %v\n%s%s", code, err, out, errs)
	}
	if want := output.ExitFailed; code != want && d.Status.Phase != "Succeeded" || code != output.ExitOK && d.Status.Phase == "Succeeded" {
		t.Errorf("exit code %d, %s\n%s", code, d.Status.Phase, errs)
	}
	for _, r := range d.Status.Results {
		t.Log(r.ID, r.Operation, r.State, r.Duration, r.Reason, r.Message) // withheld operations have no duration
	}
	return &d
}

// found checks the verdict, the operations of the path, and the excluded causes.
func found(t *testing.T, d *runDocument, reason, message, path string, excluded ...string) {
	t.Helper()
	v := d.Status.Verdict
	if v == nil || v.Reason != reason || !strings.Contains(v.Message, message) {
		t.Errorf("verdict %+v, want %s: %s", v, reason, message)
	}
	var names []string
	for _, id := range d.Status.SucceededPath {
		names = append(names, d.Graph[id].Operation)
	}
	if got := strings.Join(names, " "); got != path {
		t.Errorf("path %s, want %s", got, path)
	}
	for _, want := range excluded {
		if !slices.ContainsFunc(d.Excluded, func(e excludedCause) bool { return e.Reason == want }) {
			t.Errorf("%s is not excluded: %+v", want, d.Excluded)
		}
	}
}

func TestHungTaskSetOnAFrozenFilesystem(t *testing.T) {
	testenv.OnlyInTestAll(t)
	needKernel(t)
	fault := &inject.FSFreeze{StateDir: t.TempDir()}
	hang, err := fault.Start(t.Context())
	agenttest.Injected(t, err)
	defer fault.Close()
	_, dir := fault.Mount()
	state := t.TempDir()
	pid := strconv.Itoa(hang.Waiter.TID)
	d := diagnosed(t, state, "hung-task", "pid="+pid)
	found(t, d, "FilesystemFrozen", " at "+dir+" is frozen: "+hang.Waiter.Comm+"["+pid+"]", "blocked-stacks kmsg-tail check-filesystem-frozen", "NoDiskStalled", "NoNFSMount")
	if len(d.Files) < 2 || !strings.HasPrefix(d.Files[0].Path, filepath.Join(state, "diagnose", "artifacts", d.ID)) {
		t.Fatalf("%+v", d.Files)
	}
	if stacks, err := os.ReadFile(d.Files[0].Path); err != nil || !strings.Contains(string(stacks), "vfs_write") {
		t.Errorf("%s: %v", stacks, err)
	}
	if err := fault.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := diagnosed(t, state, "hung-task", "pid="+pid); d.Status.Verdict != nil || d.Reason != "NoPathSucceeded" {
		t.Errorf("%+v", d.Status)
	}
}

func TestDiskErrorSetOnAReadonlyFilesystem(t *testing.T) {
	testenv.OnlyInTestAll(t)
	needKernel(t)
	fault := &inject.ReadonlyFS{StateDir: t.TempDir()}
	agenttest.Injected(t, fault.Start(t.Context()))
	defer fault.Close()
	_, dir := fault.Mount()
	// The loop device may have errors of an earlier test.
	d := diagnosed(t, t.TempDir(), "disk-error", "mountPoint="+dir, "maxAge=1ms")
	found(t, d, "FilesystemReadOnly", dir, "disk-errors disk-identity smart check-filesystem-readonly", "NoDiskStalled")
}

func TestDiskErrorSetOnFailedWrites(t *testing.T) {
	needKernel(t)
	fault := &inject.DiskError{Kind: inject.DiskWrite, StateDir: t.TempDir()}
	agenttest.Injected(t, fault.Start(t.Context()))
	defer fault.Close()
	device, dir := fault.Device()
	var d *runDocument
	// The kernel logs ten errors in five seconds for all disks, and drops the rest for good.
	testenv.Until(t, "enough failed requests are in the kernel's log", 20*time.Second, func() bool {
		for range 4 {
			if _, ioErr, err := fault.Fail(); ioErr == nil || err != nil {
				t.Fatal(ioErr, err)
			}
		}
		d = diagnosed(t, t.TempDir(), "disk-error", "device="+device)
		return d.Status.Verdict != nil
	})
	found(t, d, "DiskFailing", device+": ", "disk-errors disk-identity smart check-disk-failing cordon")
	for _, r := range d.Status.Results {
		if r.Operation == "check-disk-failing" && !strings.Contains(r.Values["mountPoints"], dir) {
			t.Errorf("%v", r.Values)
		}
	}
}
