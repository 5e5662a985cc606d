package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/runner"
)

// memoryDir returns a folder in memory if there is one, so that tests don't wait for the disk.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "kernosis-runner-") //nolint:usetesting // in memory
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// randomDiagnosis returns a diagnosis with up to eleven nodes, whose outcomes depend only on a seed
// and on the results of their dependences. ran counts their runs.
func randomDiagnosis(t *testing.T, seed uint64, ran map[int]int) *runner.Diagnosis {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 9))
	nodes := make([]graph.Node, 3+rnd.IntN(9))
	for i := range nodes {
		nodes[i] = graph.Node{ID: i}
		if i == 0 {
			continue
		}
		nodes[i].Operation = fmt.Sprint("op", i)
		always := rnd.IntN(i)
		for from := range i {
			if from == always || rnd.IntN(4) == 0 {
				nodes[from].To = append(nodes[from].To, i)
			}
		}
	}
	g, err := graph.Build(nodes)
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		nodes[i].Dependences = g.AlwaysBefore(i)
	}
	if g, err = graph.Build(nodes); err != nil {
		t.Fatal(err)
	}
	d := &runner.Diagnosis{ID: "a", Graph: g, Steps: make([]runner.Step, g.Len())}
	fails := rnd.Uint64N(160)
	for id := 1; id < g.Len(); id++ {
		effect := []operation.Effect{operation.Collect, operation.Check, operation.Remediate}[rnd.IntN(3)]
		d.Steps[id].Operation = runner.Operation{Effect: effect, Run: func(_ context.Context, in *runner.Inputs) (operation.Output, error) {
			ran[id]++
			h := fnv.New64a()
			fmt.Fprint(h, seed, id, in.Results)
			sum := h.Sum64()
			if sum>>32%256 < fails {
				return operation.Output{}, errors.New("fails")
			}
			return operation.Output{Results: map[string]string{fmt.Sprint("of", id): strconv.FormatUint(sum, 16)}}, nil
		}}
	}
	return d
}

func outcome(rep *runner.Report) string {
	return fmt.Sprint(rep.Phase, rep.Reason, " ", states(rep), " ", rep.Path, rep.Failed, rep.FailedCount)
}

// Every checkpoint that a run writes is resumed by another runner. It ends the same way, or with a
// repair in an unknown state; completed nodes don't run again.
func TestEveryCheckpointIsGoneOnWith(t *testing.T) {
	dir, unknown, checkpoints := memoryDir(t), 0, 0
	for seed := range uint64(120) {
		ran := map[int]int{}
		first := filepath.Join(dir, strconv.FormatUint(seed, 10))
		path := filepath.Join(first, "a.checkpoint")
		var snapshots [][]byte
		var before []map[int]int // what had run
		r := newRunner(t, runner.Config{Dir: first, Gate: allow(), Fault: func(s runner.Stage) {
			if s != runner.StageSaved {
				return
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
			}
			snapshots = append(snapshots, raw)
			before = append(before, maps.Clone(ran))
		}})
		whole := execute(t, r, randomDiagnosis(t, seed, ran))
		for _, n := range ran {
			if n != 1 {
				t.Fatalf("seed %d: ran %v", seed, ran)
			}
		}
		for i, raw := range snapshots {
			checkpoints++
			second := filepath.Join(first, strconv.Itoa(i))
			if err := os.MkdirAll(second, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(second, "a.checkpoint"), raw, 0o600); err != nil {
				t.Fatal(err)
			}
			again := map[int]int{}
			d := randomDiagnosis(t, seed, again)
			rep := execute(t, newRunner(t, runner.Config{Dir: second, Gate: allow()}), d)
			var saved struct {
				Begun *struct{ ID int }
			}
			if err := json.Unmarshal([]byte(strings.SplitN(string(raw), "\n", 2)[1]), &saved); err != nil {
				t.Fatal(err)
			}
			underWay := saved.Begun != nil && d.Steps[saved.Begun.ID].Operation.Effect == operation.Remediate
			switch {
			case underWay && (rep.Phase != v1alpha1.PhaseUnknown || len(again) > 0):
				t.Errorf("seed %d, checkpoint %d: a repair was under way, yet %s, ran %v", seed, i, outcome(rep), again)
			case !underWay && outcome(rep) != outcome(whole):
				t.Errorf("seed %d, checkpoint %d: ended\n%s\nwithout interruption\n%s", seed, i, outcome(rep), outcome(whole))
			}
			if underWay {
				unknown++
			}
			for id, n := range again {
				repair := d.Steps[id].Operation.Effect == operation.Remediate
				if n > 1 || before[i][id] > 0 && repair {
					t.Errorf("seed %d, checkpoint %d: node %d ran again", seed, i, id)
				}
			}
		}
	}
	if unknown < 50 || checkpoints < 500 {
		t.Errorf("%d checkpoints, in %d a repair was under way", checkpoints, unknown)
	}
}

// Whatever a checkpoint with a valid checksum contains: a run that resumes from it does not panic,
// and does not repeat a repair that is in progress according to it.
func FuzzCheckpoint(f *testing.F) {
	dir, err := os.MkdirTemp("/dev/shm", "kernosis-runner-")
	if err != nil {
		dir = f.TempDir()
	}
	f.Cleanup(func() { os.RemoveAll(dir) })
	var seeds script
	r := newRunner(f, runner.Config{Dir: dir, Gate: allow(), Fault: func(s runner.Stage) {
		if raw, err := os.ReadFile(filepath.Join(dir, "a.checkpoint")); s == runner.StageSaved && err == nil {
			f.Add(raw[slices.Index(raw, '\n')+1:])
		}
	}})
	execute(f, r, seeds.diagnosis(f, "a", hungTask()...))
	f.Add([]byte(`{"plan":{"nodes":[{"ID":0,"To":[1]},{"ID":1,"Operation":"x"}],"effects":["","Remediate"]},"begun":{"id":1,"starts":1}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if err := os.WriteFile(filepath.Join(dir, "a.checkpoint"), withChecksum(body), 0o600); err != nil {
			t.Fatal(err)
		}
		var s script
		r := newRunner(t, runner.Config{Dir: dir, Gate: allow()})
		rep, err := r.Execute(t.Context(), s.diagnosis(t, "a", hungTask()...))
		if rep == nil || err == nil && !rep.Phase.Ended() && rep.Reason == "" {
			t.Fatalf("%+v, %v", rep, err)
		}
		var st v1alpha1.DiagnosisStatus
		rep.Status(&st)
		var saved struct {
			Begun *struct{ ID int }
		}
		if json.Unmarshal(body, &saved) == nil && saved.Begun != nil && saved.Begun.ID == 4 && slices.Contains(s.runs(), 4) {
			t.Errorf("the repair was made again: %s", body)
		}
	})
}
