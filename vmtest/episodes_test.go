package vmtest

import (
	"testing"

	"github.com/kernosis/kernosis/detector/problem"
)

// episodes requires that a temporary problem is reported for each of its events and has ended at
// the end, and returns its reports. The count may restart at one if the machine was so slow that
// the problem ended between two events.
func episodes(t *testing.T, all []problem.Problem) (reported []problem.Problem) {
	t.Helper()
	count := uint64(0)
	for i, p := range all {
		if p.State == problem.Resolved {
			if p.Count != count {
				t.Errorf("%s: over with a count of %d after %d", p.Rule, p.Count, count)
			}
			count = 0
			continue
		}
		count++
		if p.State != problem.Firing || p.Count != count {
			t.Errorf("%s, reported as number %d: %s with a count of %d, want %d", p.Rule, i+1, p.State, p.Count, count)
		}
		reported = append(reported, p)
	}
	if count != 0 {
		t.Errorf("%s is not over", all[0].Rule)
	}
	return reported
}
