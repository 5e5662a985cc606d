package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/artifact"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/worker"
)

// storing returns a set with one Operation, look, whose results are kept in a folder.
func storing(folder string) *worker.Objects {
	o := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: "stores"}}
	o.Spec.Processor.Builtin = &v1alpha1.Builtin{Name: "look"}
	o.Spec.Storage = &v1alpha1.Storage{HostPath: &v1alpha1.HostPath{Path: folder}}
	known := objects(set("stored", v1alpha1.Node{ID: 1, Operation: "stores"}))
	known.Operations = []*v1alpha1.Operation{o}
	return known
}

func TestResultsAreKeptInTheOperationsFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, storing("db/dumps"))
		r.ops.do = map[string]func(context.Context, *operation.Call) (operation.Output, error){
			"look": func(_ context.Context, c *operation.Call) (operation.Output, error) {
				f, err := c.Artifacts.Create("dump.txt")
				if err != nil {
					return operation.Output{}, err
				}
				if _, err := f.Write([]byte("what was found")); err != nil {
					return operation.Output{}, err
				}
				return operation.Output{Results: map[string]string{"found": strings.Repeat("<long>", 200)}}, f.Close()
			},
		}
		r.make(nil)
		r.start()
		defer r.stop()
		r.api.add(person("a", "stored"))
		synctest.Wait()
		d := r.api.get("a")
		want(t, d, "Succeeded PathSucceeded [1] 1 Succeeded")
		at := filepath.Join(worker.Storage(r.dir), "db", "dumps", string(d.UID))
		for path, mode := range map[string]fs.FileMode{"": fs.ModeDir | 0o700, "1-dump.txt": 0o600, "1-results.json": 0o600} {
			if info, err := os.Lstat(filepath.Join(at, path)); err != nil || info.Mode() != mode {
				t.Errorf("%s: %v, %v", path, info, err)
			}
		}
		raw, err := os.ReadFile(filepath.Join(at, "1-dump.txt"))
		if err != nil || string(raw) != "what was found" {
			t.Errorf("%q, %v", raw, err)
		}
		var kept runner.Record
		if raw, err = os.ReadFile(filepath.Join(at, "1-results.json")); err == nil {
			err = json.Unmarshal(raw, &kept)
		}
		if err != nil || kept.Operation != "stores" || kept.State != v1alpha1.ResultSucceeded || kept.Results["found"] != strings.Repeat("<long>", 200) {
			t.Errorf("%.300s, %v", raw, err)
		}
		if files := r.reported()[0].Files; !slices.Equal(files, []string{filepath.Join(at, "1-dump.txt"), filepath.Join(at, "1-results.json")}) {
			t.Error(files)
		}
		var names []string
		for _, a := range d.Status.Artifacts {
			names = append(names, a.Name)
		}
		if !slices.Equal(names, []string{"1-dump.txt", "1-results.json"}) {
			t.Error(names)
		}
		// They are kept and removed like the other evidence of a run.
		r.api.remove(types.NamespacedName{Namespace: system, Name: "a"})
		time.Sleep(time.Hour)
		if _, err := os.Stat(at); err != nil {
			t.Error(err)
		}
	})
}

// Writers of Operations can't choose arbitrary folders of the host: nothing is run or written.
func TestFoldersThatAreRefused(t *testing.T) {
	outside := t.TempDir()
	for folder, message := range map[string]string{
		"/etc/cron.d":  "spec.storage.hostPath.path: /etc/cron.d is a system folder",
		"../taken":     "spec.storage.hostPath.path: folder \"..\": want letters",
		"/srv/results": "spec.storage.hostPath.path: /srv/results is not below ",
		"link/deeper":  "link is a symbolic link or a file: not a directory",
		outside:        "spec.storage.hostPath.path: " + outside + " is not below ",
	} {
		t.Run(strings.ReplaceAll(folder, "/", "-"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, storing(folder))
				if err := os.MkdirAll(worker.Storage(r.dir), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(outside, filepath.Join(worker.Storage(r.dir), "link")); err != nil {
					t.Fatal(err)
				}
				r.make(nil)
				r.start()
				defer r.stop()
				r.api.add(person("a", "stored"))
				synctest.Wait()
				d := r.api.get("a")
				said := []string{d.Status.Conditions[0].Message}
				for _, result := range d.Status.Results {
					said = append(said, result.Reason, result.Message)
				}
				text := strings.Join(said, " ")
				if d.Status.Phase != v1alpha1.PhaseFailed || !strings.Contains(text, message) || !strings.Contains(text, "spec.storage.hostPath.path") {
					t.Errorf("%s: %s, want %s", d.Status.Phase, text, message)
				}
				if n := r.ops.count("look"); n != 0 {
					t.Errorf("it ran %d times", n)
				}
			})
			if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
				t.Errorf("%v, %v", entries, err)
			}
		})
	}
}

// The files of a run that waits for a decision are evicted only if there are no others, also after
// a restart.
func TestFilesOfARunThatWaitsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(mends("mend"), looks()))
		r.conf.Artifacts = artifact.Config{Budget: 10}
		r.ops.do = map[string]func(context.Context, *operation.Call) (operation.Output, error){
			"look": func(_ context.Context, c *operation.Call) (operation.Output, error) {
				f, err := c.Artifacts.Create("dump.txt")
				if err != nil {
					return operation.Output{}, err
				}
				_, err = f.Write([]byte("four"))
				return operation.Output{}, errors.Join(err, f.Close())
			},
		}
		r.make(nil)
		r.start()
		defer func() { r.stop() }()
		kept := func() string {
			var names []string
			for _, name := range []string{"waits", "b", "c", "d", "e"} {
				d := r.api.get(name)
				if d == nil {
					continue
				}
				if _, err := os.Stat(filepath.Join(worker.Artifacts(r.dir), string(d.UID), "1-dump.txt")); err == nil {
					names = append(names, name)
				}
			}
			return strings.Join(names, " ")
		}
		run := func(name, set, want string) {
			t.Helper()
			r.api.add(person(name, set))
			time.Sleep(time.Minute)
			if got := kept(); got != want {
				t.Errorf("after %s: files of %s, want %s", name, got, want)
			}
		}
		run("waits", "mends", "waits")
		run("b", "looks", "waits b")
		run("c", "looks", "waits c")
		r.restart(func() {})
		time.Sleep(time.Minute)
		run("d", "looks", "waits d")
		decide(t, r, "waits", "mend", v1alpha1.RemediationRun, nil)
		time.Sleep(time.Minute)
		run("e", "looks", "d e")
	})
}
