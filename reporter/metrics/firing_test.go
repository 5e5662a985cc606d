package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kernosis/kernosis/detector/problem"
)

// A node with very many problems has a bounded number of series: the most severe problems, and
// of these the oldest.
func TestFiringIsBounded(t *testing.T) {
	m := New("v1", "")
	at := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	var all []FiringProblem
	for i := range 3 * maxInfos {
		severity := []problem.Severity{problem.Info, problem.Warning, problem.Critical}[i%3]
		all = append(all, FiringProblem{Rule: "r", Reason: "R", Severity: severity, Subject: fmt.Sprint("sd", i), Since: at.Add(-time.Duration(i) * time.Second)})
	}
	m.Firing(append(all, FiringProblem{Rule: "r", Reason: "R", Severity: problem.Critical, Subject: "newest", Since: at.Add(time.Second)}))
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
