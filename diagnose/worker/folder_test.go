package worker_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

const shipped = `apiVersion: kernosis.io/v1alpha1
kind: OperationSet
metadata: {name: hung-task}
spec:
  adjacencyList:
  - {id: 0, to: [1]}
  - {id: 1, operation: hung-task-log}
---
apiVersion: kernosis.io/v1alpha1
kind: Operation
metadata: {name: hung-task-log}
spec: {processor: {builtin: {name: kmsg-tail}}}
---
apiVersion: kernosis.io/v1alpha1
kind: Trigger
metadata: {name: hung-task}
spec:
  operationSet: hung-task
  sourceTemplate: {problemTemplate: {rules: [task-hung]}}
`

// reported is a Handler that forwards changes of objects.
type reported chan struct{}

func (c reported) ObjectsChanged() {
	select {
	case c <- struct{}{}:
	default:
	}
}
func (reported) Diagnosis(*v1alpha1.Diagnosis) {}
func (reported) Gone(worker.Key)               {}

func open(t *testing.T, dir string) (*worker.Folder, error) {
	t.Helper()
	return openWatched(dir, nil, document.Watch)
}

func openWatched(dir string, log *slog.Logger, watch func(context.Context, string, *slog.Logger, func())) (*worker.Folder, error) {
	return worker.OpenFolder(worker.FolderConfig{
		Shipped: []document.File{{Name: "hung-task.yaml", Data: []byte(shipped)}}, Dir: dir,
		Builtins: catalog.All(operation.Host{}), Watch: watch, Log: log,
	})
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestManifestsOverTheShippedOnes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "own.yaml", strings.Replace(shipped[strings.LastIndex(shipped, "---"):], "spec:\n", "spec:\n  cooldown: 1m\n", 1)+`---
apiVersion: kernosis.io/v1alpha1
kind: OperationSet
metadata: {name: other}
spec: {adjacencyList: [{id: 0, to: [1]}, {id: 1, operation: mounts}]}
`)
	s, err := open(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	known := s.Objects()
	if len(known.OperationSets) != 2 || len(known.Triggers) != 1 || known.Triggers[0].Spec.Cooldown.Duration != time.Minute || len(known.Operations) != 1 {
		t.Errorf("%+v", known)
	}
}

func TestWhatIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"policy":         {"apiVersion: kernosis.io/v1alpha1\nkind: RemediationPolicy\nmetadata: {name: a}\nspec: {}\n", []string{"own.yaml:2:", "a RemediationPolicy needs a cluster"}},
		"diagnosis":      {"apiVersion: kernosis.io/v1alpha1\nkind: Diagnosis\nmetadata: {name: a, namespace: b}\nspec: {operationSet: hung-task, nodeName: n7}\n", []string{"own.yaml:2:", "use kernosis diagnose run"}},
		"cron":           {"apiVersion: kernosis.io/v1alpha1\nkind: Trigger\nmetadata: {name: a}\nspec:\n  operationSet: hung-task\n  nodeName: n7\n  sourceTemplate: {cronTemplate: {schedule: \"0 2 * * *\"}}\n", []string{"own.yaml:7:", "needs a cluster"}},
		"no such set":    {"apiVersion: kernosis.io/v1alpha1\nkind: Trigger\nmetadata: {name: a}\nspec:\n  operationSet: hung-tusk\n  sourceTemplate: {problemTemplate: {rules: [x]}}\n", []string{"own.yaml:5:", `did you mean "hung-task"`}},
		"no such op":     {"apiVersion: kernosis.io/v1alpha1\nkind: OperationSet\nmetadata: {name: a}\nspec:\n  adjacencyList:\n  - {id: 0, to: [1]}\n  - {id: 1, operation: kmsg-tale}\n", []string{"own.yaml:7:", `did you mean "kmsg-tail"`}},
		"breaks another": {"apiVersion: kernosis.io/v1alpha1\nkind: Operation\nmetadata: {name: hung-task-log}\nspec: {processor: {builtin: {name: kmsg-tail, parameters: {lines: many}}}}\n", []string{"own.yaml:4:", "lines"}},
		"matches all":    {"apiVersion: kernosis.io/v1alpha1\nkind: Trigger\nmetadata: {name: a}\nspec:\n  operationSet: hung-task\n  sourceTemplate: {problemTemplate: {namespaces: [UPPER]}}\n", []string{"own.yaml:6:"}},
		"unknown key":    {"apiVersion: kernosis.io/v1alpha1\nkind: Trigger\nmetadata: {name: a}\nspec: {operationSets: hung-task}\n", []string{"own.yaml:4:", "operationSets"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "own.yaml", c.text)
			_, err := open(t, dir)
			if err == nil {
				t.Fatal("taken")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in\n%v", want, err)
				}
			}
		})
	}
	if _, err := open(t, filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a folder that is not there is taken")
	}
}

// A change is in force at once, even one from before the folder was watched. An invalid change is
// rejected as a whole, and the previous manifests stay in force.
func TestReload(t *testing.T) {
	const other = "apiVersion: kernosis.io/v1alpha1\nkind: OperationSet\nmetadata: {name: other}\nspec: {adjacencyList: [{id: 0, to: [1]}, {id: 1, operation: mounts}]}\n"
	dir := t.TempDir()
	var logs testenv.LogBuffer
	s, err := openWatched(dir, slog.New(slog.NewTextHandler(&logs, nil)), func(ctx context.Context, dir string, log *slog.Logger, onChange func()) {
		write(t, dir, "other.yaml", other)
		document.Watch(ctx, dir, log, onChange)
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	changed, done := make(reported, 1), make(chan error)
	go func() { done <- s.Run(ctx, changed) }()
	for deadline := time.After(testenv.Within(20 * time.Second)); len(s.Objects().OperationSets) != 2; {
		select {
		case <-changed:
		case <-deadline:
			t.Fatal("the change is not in force")
		}
	}
	write(t, dir, "bad.yaml", strings.Replace(other, "mounts", "mount", 1))
	testenv.Until(t, "the bad file is refused", 20*time.Second, func() bool { return strings.Contains(logs.String(), "diagnoses not reloaded") })
	if n := len(s.Objects().OperationSets); n != 2 {
		t.Errorf("%d sets", n)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// If the folder can't be watched, its manifests stay in force and the agent does not end.
func TestFolderThatCannotBeWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var logs testenv.LogBuffer
		s, err := openWatched(dir, slog.New(slog.NewTextHandler(&logs, nil)), document.Watch)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx, make(reported, 1)) }()
		time.Sleep(time.Minute)
		select {
		case err := <-done:
			t.Fatalf("the agent ends: %v", err)
		default:
		}
		cancel()
		if err := <-done; err != nil || len(s.Objects().OperationSets) != 1 {
			t.Errorf("%v, %+v", err, s.Objects())
		}
		if n := strings.Count(logs.String(), "diagnoses not reloaded"); n != 1 {
			t.Errorf("logged %d times within a minute:\n%s", n, logs.String())
		}
	})
}

// A Folder stores no Diagnoses: what the worker writes is what it gets back.
func TestDiagnoses(t *testing.T) {
	s, err := open(t, "")
	if err != nil {
		t.Fatal(err)
	}
	d := &v1alpha1.Diagnosis{}
	d.Namespace, d.Name, d.Spec.OperationSet = "kube-system", "a", "hung-task"
	made, err := s.Create(t.Context(), d)
	if err != nil || made.UID == "" || made.Spec.OperationSet != "hung-task" {
		t.Fatalf("%+v, %v", made, err)
	}
	k := worker.Key{UID: made.UID}
	k.Namespace, k.Name = "kube-system", "a"
	got, err := s.Write(t.Context(), k, func(st *v1alpha1.DiagnosisStatus) { st.Phase = v1alpha1.PhaseRunning })
	if err != nil || got.Status.Phase != v1alpha1.PhaseRunning || got.UID != made.UID {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := s.Write(t.Context(), worker.Key{}, func(*v1alpha1.DiagnosisStatus) {}); err == nil {
		t.Error("what was never made is written")
	}
}
