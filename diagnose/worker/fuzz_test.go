package worker_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/worker"
)

func seed(f *testing.F, path string) []byte {
	raw, err := os.ReadFile(filepath.Join("testdata/earlier", path))
	if err != nil {
		f.Fatal(err)
	}
	return raw
}

// A state is restored as a whole, or the error says that it is not; and it is the same after
// another restart.
func FuzzRestore(f *testing.F) {
	f.Add(seed(f, "state.json"))
	f.Add([]byte(`{"trigger":{"version":1},"wanted":[{"id":"a","own":true,"diagnosis":{"metadata":{"name":"a"},"spec":{}}}],"waiting":[{"problem":{"rule":"r"}}]}`))
	f.Add([]byte(`{"trigger":{},"wanted":[{"id":"../x","diagnosis":{"metadata":{"name":"a"}}}]}`))
	f.Add([]byte(`{"trigger":{},"wanted":[{"id":"b"}]}`))
	f.Add([]byte(`{"trigger":{},"waiting":[{}]}`))
	type parts struct {
		Wanted []struct {
			ID        string              `json:"id"`
			Diagnosis *v1alpha1.Diagnosis `json:"diagnosis"`
		} `json:"wanted"`
		Waiting []any `json:"waiting"`
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := newRig(t, &worker.Objects{})
		restore := func(raw []byte) (state []byte, of parts, err error) {
			w, err := worker.New(r.conf)
			if err == nil {
				err = w.Restore(raw, false)
			}
			if err != nil {
				return nil, of, err
			}
			if state, err = w.State(); err == nil {
				err = json.Unmarshal(state, &of)
			}
			if err != nil {
				t.Fatalf("%s: %v", raw, err)
			}
			return state, of, nil
		}
		first, have, err := restore(raw)
		if err != nil || len(raw) == 0 {
			return
		}
		var saved parts
		_ = json.Unmarshal(raw, &saved) // as Restore did
		if len(have.Waiting) != len(saved.Waiting) {
			t.Errorf("%s: %d of %d transitions", raw, len(have.Waiting), len(saved.Waiting))
		}
		ids := map[string]bool{}
		for _, d := range saved.Wanted {
			ids[d.ID] = true
		}
		for _, d := range have.Wanted {
			if filepath.Base(d.ID) != d.ID || d.ID == "." || d.ID == ".." || d.Diagnosis.Name == "" {
				t.Errorf("%s: run %q of %+v", raw, d.ID, d.Diagnosis)
			}
			delete(ids, d.ID)
		}
		if len(ids) > 0 {
			t.Errorf("%s: not restored: %v", raw, ids)
		}
		if again, _, err := restore(first); err != nil || string(again) != string(first) {
			t.Errorf("%v %s", err, cmp.Diff(string(first), string(again)))
		}
	})
}

// An entry of the ledger is read, or counted as damaged and kept under another name.
func FuzzLedger(f *testing.F) {
	f.Add(seed(f, "diagnose/taken/uid-1.json"))
	f.Add([]byte(`{"id":"uid-1","diagnosis":{"metadata":{"name":"a"}},"version":2}`))
	f.Add([]byte(`null`))
	f.Add(make([]byte, 100))
	f.Fuzz(func(t *testing.T, content []byte) {
		r := newRig(t, &worker.Objects{})
		if err := os.Mkdir(filepath.Join(r.dir, "taken"), 0o700); err != nil {
			t.Fatal(err)
		}
		r.put(filepath.Join(r.dir, "taken/uid-1.json"), string(content))
		d, readErr := worker.ReadTaken(r.dir, "uid-1")
		w, err := worker.New(r.conf)
		if err != nil {
			t.Fatal(err)
		}
		if (readErr == nil) != (w.Stats().Damaged == 0) || readErr == nil && d.Name == "" {
			t.Errorf("%q: %+v, %v, %d damaged", content, d, readErr, w.Stats().Damaged)
		}
		if left := r.taken(); len(left) != 1 {
			t.Errorf("%q: %q", content, left)
		}
	})
}
