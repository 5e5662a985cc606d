package runner_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/runner"
)

// Runs that an earlier version has begun resume, and their running operation is known.
func TestCheckpointsOfAnEarlierVersion(t *testing.T) {
	for id, c := range map[string]struct {
		phase           v1alpha1.Phase
		reason, records string
		ran             string
	}{
		"waits": {v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Succeeded, 5 Succeeded", "[4 5]"},
		"ended": {v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Succeeded, 5 Succeeded", "[]"},
		"begun": {v1alpha1.PhaseUnknown, v1alpha1.ReasonOutcomeUnknown, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Unknown", "[]"},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS("testdata/earlier")); err != nil {
			t.Fatal(err)
		}
		var s script
		d := s.diagnosis(t, id, hungTask()...)
		if id == "waits" {
			d.Parameters = map[string]string{"pid": "811"}
		}
		if saved, err := runner.ReadSaved(dir, id); err != nil || saved.Report.Started.IsZero() || len(saved.Effects) != 6 {
			t.Errorf("%s: %+v, %v", id, saved, err)
		}
		r := newRunner(t, runner.Config{Dir: dir, Gate: allow()})
		want(t, execute(t, r, d), c.phase, c.reason, c.records)
		if got := fmt.Sprint(s.runs()); got != c.ran || r.Stats().Corrupt > 0 {
			t.Errorf("%s: ran %s, want %s", id, got, c.ran)
		}
	}
}

// more adds a field to each object in a JSON text, except to maps of texts.
func more(t *testing.T, text []byte) []byte {
	t.Helper()
	var add func(v any) any
	add = func(v any) any {
		switch v := v.(type) {
		case []any:
			for i := range v {
				v[i] = add(v[i])
			}
		case map[string]any:
			for k, child := range v {
				if k != "parameters" && k != "results" {
					v[k] = add(child)
				}
			}
			v["later"] = map[string]any{"is": true}
		}
		return v
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(add(v))
	if err != nil {
		t.Fatal(err)
	}
	return append(out, '\n')
}

// After a rollback, the older version resumes runs of the newer one, whose checkpoints have
// additional fields.
func TestCheckpointsWithMore(t *testing.T) {
	dir := t.TempDir()
	s, d := half(t, dir, hungTask()...)
	path := filepath.Join(dir, "a.checkpoint")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := bytes.Cut(raw, []byte("\n"))
	if err := os.WriteFile(path, withChecksum(more(t, body)), 0o600); err != nil {
		t.Fatal(err)
	}
	before := len(s.runs())
	r := newRunner(t, runner.Config{Dir: dir, Gate: allow()})
	want(t, execute(t, r, d), v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Succeeded, 5 Succeeded")
	if got := fmt.Sprint(s.runs()[before:]); got != "[4 5]" || r.Stats().Corrupt > 0 {
		t.Errorf("ran %s, %+v", got, r.Stats())
	}
}

// A run with a checkpoint of a newer format is Unknown, and the checkpoint stays for the newer
// version, whatever the diagnosis may do.
func TestCheckpointsOfANewerForm(t *testing.T) {
	const why = "it is from a newer version of Kernosis: format 2, known up to 1"
	for message, lines := range map[string][]string{
		"unknown whether a repair was made: check by hand. ": hungTask(),
		"its findings are unknown. ":                         {": 1", "collect-a: 2", "check-b:"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "a.checkpoint")
		newer := []byte("kernosis-checkpoint-2 of another kind\n\x00\x01")
		if err := os.WriteFile(path, newer, 0o600); err != nil {
			t.Fatal(err)
		}
		var s script
		d := s.diagnosis(t, "a", lines...)
		r := newRunner(t, runner.Config{Dir: dir, Gate: allow()})
		rep, err := r.Execute(t.Context(), d)
		if !errors.As(err, new(*runner.CheckpointError)) || !strings.Contains(err.Error(), why) || len(s.runs()) > 0 {
			t.Fatalf("%v, ran %v", err, s.runs())
		}
		if rep.Phase != v1alpha1.PhaseUnknown || !strings.HasPrefix(rep.Message, message) || !strings.Contains(rep.Message, why) {
			t.Errorf("%+v", rep)
		}
		if _, err := runner.ReadSaved(dir, "a"); err == nil || !strings.Contains(err.Error(), why) {
			t.Error(err)
		}
		if err := r.Forget("a"); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("forgotten: %v", err)
		}
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if raw, err := os.ReadFile(path); err != nil || !bytes.Equal(raw, newer) || len(files) != 1 {
			t.Errorf("%q, %v, %v", raw, files, err)
		}
	}
}
