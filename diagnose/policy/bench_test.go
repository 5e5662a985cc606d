package policy_test

import (
	"fmt"
	"testing"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

// BenchmarkDecide decides on a repair that waits for the budget, in a cluster that is used for
// thousands of decisions.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprintf("%d nodes", n), func(b *testing.B) {
			p := enforce(1)
			underRepair(p, "n01")
			c, policies, w := nodes(n), []*policy.Policy{policy.New(p)}, want("n50")
			b.ReportAllocs()
			for b.Loop() {
				if d := policy.Decide(policies, c, w, noon); d.Verb != v1alpha1.RemediationWait {
					b.Fatalf("%+v", d)
				}
			}
		})
	}
}
