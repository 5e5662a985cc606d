package worker_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// TestTheDiskHangs makes the disk hang while an operation creates an artifact: reporting detected
// problems and renewing the Lease must not wait for it.
func TestTheDiskHangs(t *testing.T) {
	testenv.HoldKernel(t) // otherwise other tests would detect the hung task
	disk := disklab.NewExt4(t, 16<<20)
	r := newRig(t, objects(set("looks", v1alpha1.Node{ID: 1, Operation: "look"})))
	r.conf.Dir = filepath.Join(disk.Dir, "diagnoses")
	begun, frozen := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	r.ops.do = map[string]func(context.Context, *operation.Call) (operation.Output, error){
		"look": func(_ context.Context, c *operation.Call) (operation.Output, error) {
			begin()
			<-frozen
			f, err := c.Artifacts.Create("dump.txt")
			if err != nil {
				return operation.Output{}, err
			}
			return operation.Output{}, f.Close()
		},
	}
	r.make(nil)
	r.start()
	t.Cleanup(func() { r.stop() })
	r.api.add(person("a", "looks"))
	<-begun
	thaw := disk.Freeze()
	close(frozen)
	testenv.Until(t, "an artifact that waits for the disk", 10*time.Second, func() bool { return inMkdir(t) })

	r.api.add(person("b", "other"))
	written := func() bool { return r.api.get("b").Status.Checkpoint != nil }
	returns(t, "Holder", func() {
		for start := time.Now(); !written() && time.Since(start) < time.Second; {
			r.w.Holder()
		}
	})
	returns(t, "Observe", func() { r.w.Observe(hung(began(), problem.Firing), time.Now()) })
	if !t.Failed() {
		testenv.Until(t, "another Diagnosis' status", 5*time.Second, written)
	}
	thaw()
	testenv.Until(t, "the end of what has waited", 10*time.Second, func() bool { return r.api.get("a").Status.Phase == v1alpha1.PhaseSucceeded })
}

// TestTheDiskHangsAtTheStart makes the disk hang while a worker reads what the previous one has not
// reported: reporting detected problems must not wait for it.
func TestTheDiskHangsAtTheStart(t *testing.T) {
	r := newRig(t, objects(looks()))
	r.make(nil)
	r.api.setAway(true)
	r.start()
	at := began()
	r.w.Observe(hung(at, problem.Firing), time.Now())
	testenv.Until(t, "the end of a Diagnosis", 10*time.Second, func() bool { return len(r.reported()) == 1 })
	r.stop()

	r.make(nil)
	r.api.setAway(false)
	disk := disklab.HangFiles(t, runner.SavedPath(worker.Checkpoints(r.dir), r.reported()[0].ID))
	r.start()
	t.Cleanup(func() { r.stop() })
	disk.Wait()
	returns(t, "Observe", func() { r.w.Observe(hung(at, problem.Firing), time.Now()) })
	disk.Release()
	testenv.Until(t, "what was not reported", 10*time.Second, func() bool {
		known, _ := r.api.known()
		return known == 1 && r.api.only(t).Status.Phase == v1alpha1.PhaseSucceeded
	})
	want(t, r.api.only(t), "Succeeded PathSucceeded IsB [1 3] 1 Succeeded, 2 Refuted, 3 Succeeded")
}

// inMkdir reports whether a thread of this process is in mkdir, which a frozen disk blocks.
func inMkdir(t *testing.T) bool {
	t.Helper()
	all, err := filepath.Glob("/proc/self/task/*/syscall")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err == nil && strings.HasPrefix(string(text), strconv.Itoa(unix.SYS_MKDIRAT)+" ") {
			return true
		}
	}
	return false
}

// returns fails the test if f does not return soon.
func returns(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(testenv.Within(2 * time.Second)):
		t.Errorf("%s waits for the disk", what)
	}
}
