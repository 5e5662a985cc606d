package controller_test

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/artifact"
	"github.com/kernosis/kernosis/diagnose/controller"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/diagnose/worker/kube"
)

// artifactBytes is what each run of the test stores; the budget has room for three.
const artifactBytes, budgetBytes = 600 << 10, 2 << 20

// dumps returns a built-in that always stores a file.
func dumps() operation.Builtin {
	return operation.Builtin{Name: "dump", Effect: operation.Collect, Run: func(_ context.Context, c *operation.Call) (operation.Output, error) {
		f, err := c.Artifacts.Create("dump.bin")
		if err != nil {
			return operation.Output{}, err
		}
		if _, err := f.Write(bytes.Repeat([]byte("x"), artifactBytes)); err != nil {
			return operation.Output{}, err
		}
		return operation.Output{}, f.Close()
	}}
}

// work runs the worker of a node's agent over the API server until stop is called.
func (b *bench) work(node, dir string, all ...operation.Builtin) (stop func()) {
	b.t.Helper()
	log := slog.New(slog.NewTextHandler(b.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	store, err := kube.New(kube.Config{REST: b.server.Admin(), Node: node, Dir: dir, Log: log, Builtin: func(string) bool { return true }})
	if err != nil {
		b.t.Fatal(err)
	}
	w, err := worker.New(worker.Config{
		Node: node, Namespace: b.namespace, Dir: dir, Store: store, Builtins: all, Log: log,
		Keep: 5, Artifacts: artifact.Config{Budget: budgetBytes},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := w.Run(ctx); err != nil && ctx.Err() == nil {
			b.t.Error(err)
		}
	})
	stop = func() { cancel(); ended.Wait() }
	b.t.Cleanup(stop)
	return stop
}

// evidence returns the runs that can be shown from a node's disk, and those that still have files.
func evidence(t testing.TB, dir string) (runs, withFiles []string) {
	t.Helper()
	runs, err := runner.SavedIDs(worker.Checkpoints(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range runs {
		files, err := artifact.Read(worker.Artifacts(dir), id)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 1 && files[0].Size == artifactBytes {
			withFiles = append(withFiles, id)
		}
	}
	return runs, withFiles
}

// The history limit applies to objects of the cluster. A node keeps its evidence until its own
// limits are reached.
func TestEvidenceOutlivesTheObject(t *testing.T) {
	b := newBench(t)
	limit := int32(1)
	trigger := &v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: b.name("t")}, Spec: v1alpha1.TriggerSpec{
		OperationSet: "any", NodeName: "n1", HistoryLimit: &limit, SourceTemplate: v1alpha1.SourceTemplate{CronTemplate: &v1alpha1.CronTemplate{Schedule: "0 2 * * *"}},
	}}
	set, node, dir := b.set("dump"), b.server.Node(t), t.TempDir()
	b.create(trigger)
	b.control(func(c *controller.Config) { c.Builtins = []operation.Builtin{dumps()} })
	stop := b.work(node, dir, dumps())
	var ids []string
	run := func() {
		t.Helper()
		d := b.dx(v1alpha1.DiagnosisSpec{OperationSet: set, NodeName: node}, v1alpha1.LabelTrigger, trigger.Name)
		b.waitIs(d, "Succeeded True "+v1alpha1.ReasonPathSucceeded)
		ids = append(ids, string(b.get(d).UID))
		b.waitFor("the history has its limit", func() bool { return len(b.left()) == 1 })
	}
	check := func(runs, withFiles int) {
		t.Helper()
		haveRuns, haveFiles := evidence(t, dir)
		newest := func(n int) []string { return slices.Sorted(slices.Values(ids[len(ids)-n:])) }
		if !slices.Equal(haveRuns, newest(runs)) || !slices.Equal(haveFiles, newest(withFiles)) {
			t.Errorf("of %v the node has %v, with files %v; want the newest %d, and of %d the files", ids, haveRuns, haveFiles, runs, withFiles)
		}
	}
	for range 3 {
		run()
	}
	check(3, 3) // the first was deleted before the last began
	run()
	check(4, 3)
	run()
	run()
	// One more run of the node is handled after all the deletions that it is notified of.
	b.waitFor("the oldest run is forgotten", func() bool { runs, _ := evidence(t, dir); return len(runs) == 5 })
	check(5, 3)
	stop()
	stop = b.work(node, dir, dumps())
	run()
	b.waitFor("the oldest run is forgotten", func() bool { runs, _ := evidence(t, dir); return len(runs) == 5 })
	check(5, 3)
	stop()
	total := int64(0)
	if err := fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasPrefix(path, filepath.Base(worker.Artifacts(dir))) {
			return err
		}
		info, err := e.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if total > budgetBytes {
		t.Errorf("%d bytes of files, the budget is %d", total, budgetBytes)
	}
}
