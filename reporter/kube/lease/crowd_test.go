package lease_test

import (
	"testing"
	"time"

	"github.com/kernosis/kernosis/reporter/kube/lease"
)

func TestCrowd(t *testing.T) {
	const period = 50 * time.Second
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct{ agents, quiet, want int }{
		"none":                         {5000, 0, 1},
		"a rack of a large cluster":    {5000, 40, 1},
		"one agent of 20 in a hundred": {5000, 250, 1},
		"more than that":               {5000, 251, 3},
		"half of a small cluster":      {20, 10, 1},
		"all but one of a small one":   {12, 11, 3},
		"no agents":                    {0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var crowd lease.Crowd
			crowd.See(c.agents, c.quiet, now, period)
			if got := crowd.Patience(now); got != c.want {
				t.Errorf("patience %d, want %d", got, c.want)
			}
			crowd.See(c.agents, 0, now.Add(period-1), period)
			if got := crowd.Patience(now.Add(period - 1)); got != c.want {
				t.Errorf("patience %d while the others come back, want %d", got, c.want)
			}
			if got := crowd.Patience(now.Add(period)); got != 1 {
				t.Errorf("patience %d a period later", got)
			}
		})
	}
	for quiet, want := range map[time.Duration]bool{
		0: false, 30*time.Second - 1: false, 30 * time.Second: true, 500*time.Second - 1: true, 500 * time.Second: false,
	} {
		if got := lease.InCrowd(quiet, period); got != want {
			t.Errorf("quiet for %s: %v", quiet, got)
		}
	}
}
