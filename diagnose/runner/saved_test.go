package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/runner"
)

// ReadSaved returns for a run that has ended what Execute reported.
func TestASavedRunIsAsItWasReported(t *testing.T) {
	for _, lines := range [][]string{
		{": 1", "collect-a: 2 3", "check-b-no <1", "check-c <1: 4", "repair-d"},
		{": 1 2", "collect-a-fails: 3", "check-b-no", "check-c"},
	} {
		dir := t.TempDir()
		r := newRunner(t, runner.Config{Dir: dir})
		s := &script{}
		d := s.diagnosis(t, "d1", lines...)
		d.Parameters = map[string]string{"device": "sda"}
		rep := execute(t, r, d)
		saved, err := runner.ReadSaved(dir, "d1")
		if err != nil {
			t.Fatal(err)
		}
		asJSON := func(rep *runner.Report) string {
			b, err := json.MarshalIndent(rep, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		if diff := cmp.Diff(asJSON(rep), asJSON(saved.Report)); diff != "" {
			t.Error(diff)
		}
		if saved.Graph.Len() != d.Graph.Len() || saved.Parameters["device"] != "sda" || saved.Effects[1] != "Collect" || saved.Effects[0] != "" {
			t.Errorf("%+v", saved)
		}
	}
}

func TestASavedRunThatWasInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	var during *runner.Saved
	s := &script{behave: map[int]func(context.Context, *runner.Inputs) (operation.Output, error){
		2: func(ctx context.Context, _ *runner.Inputs) (operation.Output, error) {
			var err error
			if during, err = runner.ReadSaved(dir, "d1"); err != nil {
				t.Error(err)
			}
			stop()
			<-ctx.Done()
			return operation.Output{}, ctx.Err()
		},
	}}
	r := newRunner(t, runner.Config{Dir: dir})
	if _, err := r.Execute(ctx, s.diagnosis(t, "d1", ": 1", "collect-a: 2", "collect-b")); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	want(t, during.Report, v1alpha1.PhaseRunning, "", "1 Succeeded, 2 Running")
	after, err := runner.ReadSaved(dir, "d1")
	if err != nil {
		t.Fatal(err)
	}
	want(t, after.Report, v1alpha1.PhaseRunning, "", "1 Succeeded")
}

func TestSavedRunsThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	if _, err := runner.ReadSaved(dir, "d1"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := runner.ReadSaved(dir, "../d1"); err == nil {
		t.Error("a path is taken for an id")
	}
	for _, name := range []string{"d1.checkpoint", "d2.checkpoint", ".hidden.checkpoint", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := runner.ReadSaved(dir, "d1"); !errors.As(err, new(*runner.CheckpointError)) {
		t.Error(err)
	}
	ids, err := runner.SavedIDs(dir)
	if diff := cmp.Diff([]string{"d1", "d2"}, ids); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if ids, err := runner.SavedIDs(filepath.Join(dir, "missing")); len(ids) != 0 || err != nil {
		t.Error(ids, err)
	}
}

// A checkpoint with a valid checksum is a run whose records are nodes of its graph, or an error; a
// damaged one is always an error.
func FuzzReadSaved(f *testing.F) {
	for _, name := range []string{"waits", "ended", "begun"} {
		raw, err := os.ReadFile("testdata/earlier/" + name + ".checkpoint")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw[slices.Index(raw, '\n')+1:], uint16(20), byte(1))
	}
	f.Add([]byte(`{"plan":{"nodes":[{"ID":1,"Operation":"x"},{"ID":0,"To":[1]}],"effects":["",""]},"begun":{"id":1,"starts":1}}`), uint16(500), byte(0xff))
	f.Add([]byte("null"), uint16(0), byte(0))
	dir := f.TempDir()
	read := func(t *testing.T, content []byte) (*runner.Saved, error) {
		if err := os.WriteFile(runner.SavedPath(dir, "a"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		saved, err := runner.ReadSaved(dir, "a")
		if _, known := errors.AsType[*runner.CheckpointError](err); (saved == nil) != (err != nil) || err != nil && !known {
			t.Fatalf("%q: %+v, %v", content, saved, err)
		}
		return saved, err
	}
	f.Fuzz(func(t *testing.T, body []byte, at uint16, change byte) {
		good := withChecksum(body)
		if saved, err := read(t, good); err == nil {
			seen := map[int]bool{}
			for _, rec := range saved.Report.Records {
				if rec.ID < 1 || rec.ID >= saved.Graph.Len() || seen[rec.ID] || rec.Operation != saved.Graph.Node(rec.ID).Operation {
					t.Errorf("%s: record %+v", body, rec)
				}
				seen[rec.ID] = true
			}
			if len(saved.Effects) != saved.Graph.Len() {
				t.Errorf("%s: %d effects", body, len(saved.Effects))
			}
		}
		damaged := good[:int(at)%len(good)]
		if change != 0 {
			damaged = slices.Clone(good)
			damaged[int(at)%len(good)] ^= change
		}
		if saved, err := read(t, damaged); err == nil {
			t.Errorf("%q is damaged and reads as %+v", damaged, saved)
		}
	})
}
