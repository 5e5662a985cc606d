package policy_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// noon is on a Saturday.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// nodes returns nodes in service: n1, n2, …
func nodes(n int) *policy.Cluster {
	all := make([]policy.Node, n)
	for i := range all {
		all[i] = policy.Node{Name: name(i + 1), Ready: true, Labels: map[string]string{"pool": "a"}}
	}
	return policy.NewCluster(all)
}

func name(i int) string { return fmt.Sprintf("n%02d", i) }

// enforce returns a policy that allows repairs of maxNodes nodes at once.
func enforce(maxNodes int32) *v1alpha1.RemediationPolicy {
	hundred := int32(100)
	return &v1alpha1.RemediationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec:       v1alpha1.RemediationPolicySpec{Mode: v1alpha1.ModeEnforce, Budget: v1alpha1.Budget{MaxNodes: &maxNodes, MaxPercent: &hundred}},
	}
}

func want(node string) *policy.Want {
	return &policy.Want{Diagnosis: "uid-1", Node: node, Operation: "drain", Digest: "aa", Due: noon, Problem: v1alpha1.ProblemLasts}
}

// underRepair adds a repair that began an hour ago.
func underRepair(p *v1alpha1.RemediationPolicy, node string) {
	p.Status.Repairs = append(p.Status.Repairs, v1alpha1.Repair{Node: node, Diagnosis: "uid-x", Operation: "cordon", StartTime: metav1.NewTime(noon.Add(-time.Hour))})
}

// ended adds a repair that ended some time ago.
func ended(p *v1alpha1.RemediationPolicy, node, operation string, ago time.Duration) {
	end := metav1.NewTime(noon.Add(-ago))
	p.Status.Repairs = append(p.Status.Repairs, v1alpha1.Repair{Node: node, Diagnosis: "uid-0", Operation: operation, StartTime: metav1.NewTime(end.Add(-time.Minute)), EndTime: &end})
}

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
