package graph_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/diagnose/graph"
)

func noRepairs(int) bool { return false }

// play runs the nodes with the given outcomes (by default Succeeded), and returns what ran and the
// result.
func play(t *testing.T, g *graph.Graph, repairs []int, outcomes map[int]graph.Outcome) (ran []int, res graph.Result) {
	t.Helper()
	isRepair := map[int]bool{}
	for _, id := range repairs {
		isRepair[id] = true
	}
	r := graph.NewRun(g, func(id int) bool { return isRepair[id] })
	for id, ok := r.Next(); ok; id, ok = r.Next() {
		o := outcomes[id]
		if o == "" {
			o = graph.Succeeded
		}
		if err := r.Done(id, o); err != nil {
			t.Fatal(err)
		}
		ran = append(ran, id)
	}
	return ran, r.Result()
}

func TestRun(t *testing.T) {
	// Two causes, each with a repair, and a common check at the end.
	g := build(t, list("1", "2 3", "4", "5", "6", "6", ""))
	for name, c := range map[string]struct {
		repairs  []int
		outcomes map[int]graph.Outcome
		want     string // ran, end, path, failed, count, repaired, withheld
	}{
		"the first path": {nil, nil, "[1 2 4 6] PathSucceeded [1 2 4 6] [] 0 0 0"},
		"the second path": {nil, map[int]graph.Outcome{2: graph.Failed},
			"[1 2 3 5 6] PathSucceeded [1 3 5 6] [[1 2 4 6]] 1 0 0"},
		"a shared node that failed is not run again": {nil, map[int]graph.Outcome{6: graph.Failed},
			"[1 2 4 6 3 5] NoPath [] [[1 2 4 6] [1 3 5 6]] 2 0 0"},
		"all fail at once": {nil, map[int]graph.Outcome{1: graph.Failed},
			"[1] NoPath [] [[1 2 4 6] [1 3 5 6]] 2 0 0"},
		"stopped behind a repair": {[]int{4, 5}, map[int]graph.Outcome{6: graph.Failed},
			"[1 2 4 6] StoppedAfterRepair [1 2 4 6] [[1 2 4 6]] 1 4 0"},
		"a repair that fails ends its path only": {[]int{4, 5}, map[int]graph.Outcome{4: graph.Failed},
			"[1 2 4 3 5 6] PathSucceeded [1 3 5 6] [[1 2 4 6]] 1 0 0"},
		"a repair that is withheld": {[]int{4, 5}, map[int]graph.Outcome{2: graph.Failed, 5: graph.WouldRun},
			"[1 2 3 5] PathSucceeded [1 3 5 6] [[1 2 4 6]] 1 0 5"},
		"an unknown outcome": {[]int{4, 5}, map[int]graph.Outcome{4: graph.Unknown},
			"[1 2 4] OutcomeUnknown [1 2 4] [] 0 0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			ran, res := play(t, g, c.repairs, c.outcomes)
			if got := fmt.Sprint(ran, " ", res.End, " ", res.Path, " ", res.Failed, " ", res.FailedCount, " ", res.Repaired, " ", res.Withheld); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// A node that can be reached only through nodes that have all failed is after a repair on a later
// path: the repair runs, and the run stops.
func TestARepairBeforeWhatHasFailedAlready(t *testing.T) {
	g := build(t, list("1 2", "3", "3", ""))
	ran, res := play(t, g, []int{2}, map[int]graph.Outcome{3: graph.Failed})
	if got := fmt.Sprint(ran, res.Path, res.FailedCount, res.Repaired, " ", res.End); got != "[1 3 2] [2 3] 2 2 StoppedAfterRepair" {
		t.Error(got)
	}
}

func TestDoneRefuses(t *testing.T) {
	g := build(t, list("1", "2", ""))
	r := graph.NewRun(g, noRepairs)
	for want, err := range map[string]error{
		"the next to run is node 1": r.Done(2, graph.Succeeded),
		`unknown outcome "maybe"`:   r.Done(1, "maybe"),
		`unknown outcome ""`:        r.Done(1, ""),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if err := r.Done(1, graph.Failed); err != nil {
		t.Fatal(err)
	}
	if err := r.Done(2, graph.Succeeded); err == nil || err.Error() != "node 2: the run has ended (NoPath)" {
		t.Error(err)
	}
}
