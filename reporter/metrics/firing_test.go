package metrics

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kernosis/kernosis/collector/selfcheck"
	"github.com/kernosis/kernosis/detector/problem"
)

// The number of series of a node with very many problems is bounded: the most severe problems are
// kept, and among these the oldest.
func TestFiringIsBounded(t *testing.T) {
	m := New("v1", "")
	at := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	var all []problem.Problem
	for i := range 3 * maxInfos {
		severity := []problem.Severity{problem.Info, problem.Warning, problem.Critical}[i%3]
		all = append(all, problem.Problem{Rule: "r", Reason: "R", Severity: severity, Subject: fmt.Sprint("sd", i), Since: at.Add(-time.Duration(i) * time.Second)})
	}
	m.Firing(append(all, problem.Problem{Rule: "r", Reason: "R", Severity: problem.Critical, Subject: "newest", Since: at.Add(time.Second)}))
	if n := testutil.CollectAndCount(m.info); n != maxInfos {
		t.Fatalf("%d series", n)
	}
	if n := testutil.ToFloat64(m.firing.WithLabelValues("r")); n != 3*maxInfos+1 {
		t.Errorf("%v problems counted", n)
	}
	for i := 2; i < 3*maxInfos; i += 3 {
		if n := testutil.ToFloat64(m.info.WithLabelValues("r", "R", "critical", fmt.Sprint("sd", i))); n != 1 {
			t.Fatalf("critical problem %d is missing", i)
		}
	}
}

// A series that is set again does not disappear for a moment, because a scrape at that time would
// resolve an alert.
func TestNothingVanishesWhileItIsSetAgain(t *testing.T) {
	m := New("v1", "n")
	set := func(other string) {
		m.Firing([]problem.Problem{{Rule: "a", Reason: "A", Severity: problem.Info, Subject: "sda"}, {Rule: other, Reason: "B", Severity: problem.Info}})
		m.Degraded([]selfcheck.Lack{{Part: "a", Reason: "A"}, {Part: other, Reason: "B"}})
		m.Conditions([]problem.Condition{{Type: "a", Status: problem.True}, {Type: other, Status: problem.False}})
	}
	set("b")
	var all sync.WaitGroup
	gathered := make(chan struct{})
	all.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-gathered:
				return
			default:
				set([]string{"b", "c"}[i%2])
			}
		}
	})
	missing := map[string]int{}
	for range 1000 {
		families, err := m.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		has := map[string]bool{}
		for _, f := range families {
			for _, s := range f.GetMetric() {
				for _, l := range s.GetLabel() {
					if l.GetValue() == "a" {
						has[f.GetName()] = true
					}
				}
			}
		}
		for _, name := range []string{"kernosis_problems", "kernosis_problem_info", "kernosis_degraded", "kernosis_condition"} {
			if !has[name] {
				missing[name]++
			}
		}
	}
	close(gathered)
	all.Wait()
	if len(missing) > 0 {
		t.Errorf("missing, of 1000 scrapes: %v", missing)
	}
	set("b")
	for name, want := range map[string]int{"kernosis_problems": 2, "kernosis_problem_info": 2, "kernosis_degraded": 2, "kernosis_condition": 2 * 3} {
		if n, err := testutil.GatherAndCount(m.Registry, name); n != want || err != nil {
			t.Errorf("%s has %d series, %v", name, n, err)
		}
	}
}
