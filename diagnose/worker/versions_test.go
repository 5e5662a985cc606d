package worker_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// earlier returns a rig that starts with the files of an earlier version.
func earlier(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, objects(mends("mend"), looks()))
	if err := os.CopyFS(r.dir, os.DirFS("testdata/earlier/diagnose")); err != nil {
		t.Fatal(err)
	}
	var all []*v1alpha1.Diagnosis
	raw, err := os.ReadFile("testdata/earlier/diagnoses.json")
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.api.uids, r.api.all = len(all), map[types.NamespacedName]*v1alpha1.Diagnosis{}
	for _, d := range all {
		r.api.all[types.NamespacedName{Namespace: d.Namespace, Name: d.Name}] = d
	}
	return r
}

// ofTrigger is the Diagnosis that a trigger of the earlier version created.
const ofTrigger = "hung-n7-04a128cd9cd353ee"

const repaired = "Succeeded PathSucceeded IsB [1 2 3] 1 Succeeded, 2 Succeeded, 3 Succeeded"

// goesOn continues the work of an earlier version: finished operations and repairs are not
// repeated, and waiting repairs are made once.
func (r *rig) goesOn() {
	t := r.t
	t.Helper()
	state, err := os.ReadFile("testdata/earlier/state.json")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Minute) // some time later
	r.make(state)
	r.start()
	defer r.stop()
	time.Sleep(time.Second)
	for _, name := range []string{"waits", ofTrigger} {
		want(t, r.api.get(name), awaits)
		decide(t, r, name, "mend", v1alpha1.RemediationRun, nil)
	}
	// The problem that the earlier version reported, and its end.
	at := time.Date(1999, 12, 31, 23, 59, 58, 0, time.UTC)
	r.w.Observe(hung(at, problem.Firing), time.Now())
	r.w.Observe(hung(at, problem.Resolved), time.Now())
	time.Sleep(time.Minute)
	want(t, r.api.get("waits"), repaired)
	want(t, r.api.get(ofTrigger), repaired)
	want(t, r.api.get("ended"), wellDone)
	if p := r.api.get(ofTrigger).Status.Problem; p == nil || p.State != v1alpha1.ProblemGone {
		t.Errorf("%+v", p)
	}
	n, made := r.api.known()
	if n != 3 || made != 0 || r.ops.count("look") != 0 || r.ops.count("mend") != 2 {
		t.Errorf("%d Diagnoses, %d made, %d looks, %d repairs", n, made, r.ops.count("look"), r.ops.count("mend"))
	}
	if s := r.w.Stats(); s.Damaged > 0 {
		t.Errorf("%+v", s)
	}
}

func TestAnEarlierVersionsRunsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { earlier(t).goesOn() })
}

// A newer version that was rolled back may have added fields to the ledger.
func TestLedgerWithMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := earlier(t)
		for name, text := range r.taken() {
			more := strings.Replace(text, `{"id":`, `{"version":1,"later":{"is":[1]},"id":`, 1)
			more = strings.Replace(more, `"spec":{`, `"spec":{"later":true,`, 1)
			if more == text {
				t.Fatal(text)
			}
			r.put(name, more)
		}
		r.goesOn()
	})
}

// The holder stays the same if a newer version has added lines to the file.
func TestHolderWithMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects(looks()))
		r.put(filepath.Join(r.dir, "holder"), "0123456789abcdef\nlater\n")
		r.make(nil)
		r.start()
		defer r.stop()
		r.w.Observe(hung(began(), problem.Firing), time.Now())
		synctest.Wait()
		if c := r.api.only(t).Status.Checkpoint; c == nil || c.Holder != "n7/0123456789abcdef" {
			t.Errorf("%+v", c)
		}
	})
}

// taken returns the files of the ledger.
func (r *rig) taken() map[string]string {
	r.t.Helper()
	out := map[string]string{}
	files, err := filepath.Glob(filepath.Join(r.dir, "taken", "*"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			r.t.Fatal(err)
		}
		out[f] = string(text)
	}
	return out
}

func (r *rig) put(path, text string) {
	r.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// For an entry in a format that this version can't read, the run is Unknown, nothing of it is
// started again, and the files stay for the version that can read them.
func TestLedgerOfANewerForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := earlier(t)
		r.conf.Keep = 1
		for name := range r.taken() {
			r.put(name, `{"version":2,"id":7}`)
		}
		before := r.taken()
		checkpoints, err := filepath.Glob(filepath.Join(r.dir, "checkpoints", "*"))
		if err != nil {
			t.Fatal(err)
		}
		r.make(nil)
		r.start()
		defer r.stop()
		r.w.Observe(hung(time.Date(1999, 12, 31, 23, 59, 58, 0, time.UTC), problem.Firing), time.Now())
		time.Sleep(20 * time.Minute)
		for _, name := range []string{"waits", ofTrigger} {
			d := r.api.get(name)
			if d.Status.Phase != v1alpha1.PhaseUnknown || !strings.Contains(fmt.Sprint(d.Status.Conditions), "a newer version of Kernosis") {
				t.Errorf("%s: %+v", name, d.Status)
			}
			r.api.remove(types.NamespacedName{Namespace: system, Name: name})
		}
		time.Sleep(20 * time.Minute)
		if n := r.ops.count("look") + r.ops.count("mend"); n > 0 {
			t.Errorf("%d operations ran", n)
		}
		now := r.taken()
		for path, content := range before { // besides them there are those that this version has ended
			if now[path] != content {
				t.Errorf("%s: %s, want %s", path, now[path], content)
			}
		}
		for _, path := range checkpoints {
			if _, err := os.Stat(path); err != nil {
				t.Error(err)
			}
		}
		if s := r.w.Stats(); s.Damaged != 3 || s.Made != 0 {
			t.Errorf("%+v", s)
		}
	})
}
