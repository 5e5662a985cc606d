package policy_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// With random policies, nodes and repairs: a repair that runs breaks no rule, each of which is
// checked independently here; and a repair that no rule forbids runs.
func TestNothingRunsThatARuleForbids(t *testing.T) {
	verbs := make(map[v1alpha1.RemediationVerb]int)
	one := func(n int) bool { return rand.N(n) == 0 }
	cases := testenv.Cases(t, 50000)
	for range cases {
		c := nodes(1 + rand.N(12))
		for i := range c.Nodes {
			n := &c.Nodes[i]
			n.Ready, n.Cordoned, n.ControlPlane = !one(10), one(10), one(15)
			if one(3) {
				n.Labels = nil
			}
		}
		w := want(c.Nodes[0].Name)
		w.Problem = []v1alpha1.ProblemState{v1alpha1.ProblemLasts, v1alpha1.ProblemLasts, "", v1alpha1.ProblemGone}[rand.N(4)]
		w.Due = noon.Add(-time.Duration(rand.N(90)) * time.Minute)
		if one(2) {
			w.Approval = &v1alpha1.Approval{PlanDigest: []v1alpha1.Digest{"aa", "bb"}[rand.N(2)]}
		}
		var objs []*v1alpha1.RemediationPolicy
		var policies []*policy.Policy
		for range rand.N(3) {
			p := enforce(int32(rand.N(5)))
			*p.Spec.Budget.MaxPercent = int32(rand.N(101))
			p.Spec.Mode = []v1alpha1.RemediationMode{v1alpha1.ModeEnforce, v1alpha1.ModeEnforce, v1alpha1.ModeApprove, ""}[rand.N(4)]
			p.Spec.Pause, p.Spec.IncludeControlPlane = one(8), one(2)
			p.Spec.PauseWhenUnhealthyPercent = int32(1 + rand.N(100))
			if one(3) {
				p.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "a"}
			}
			for i := range c.Nodes {
				switch rand.N(12) {
				case 0:
					underRepair(p, c.Nodes[i].Name)
				case 1:
					ended(p, c.Nodes[i].Name, "drain", time.Duration(rand.N(90))*time.Minute)
				}
			}
			objs, policies = append(objs, p), append(policies, policy.New(p))
		}
		d := policy.Decide(policies, c, w, noon)
		verbs[d.Verb]++
		// A cluster and policies that are reused for many decisions make the same decisions as new ones,
		// whatever was asked before.
		for i := range c.Nodes {
			of := *w
			of.Node = c.Nodes[i].Name
			anew := make([]*policy.Policy, len(objs))
			for k, p := range objs {
				anew[k] = policy.New(p)
			}
			if have, want := policy.Decide(policies, c, &of, noon), policy.Decide(anew, c, &of, noon); have != want {
				t.Fatalf("%s: %+v, and counted anew %+v", of.Node, have, want)
			}
		}
		for _, p := range policies {
			if d.Verb == v1alpha1.RemediationRun && p.Selects(&c.Nodes[0]) && p.Exhausts(c, w.Node) {
				t.Fatalf("%+v, and the budget is exhausted", d)
			}
		}
		chosen := 0
		var broken []string
		breaks := func(is bool, rule string) {
			if is {
				broken = append(broken, rule)
			}
		}
		breaks(w.Problem == v1alpha1.ProblemGone, "gone")
		approved := w.Approval != nil && w.Approval.PlanDigest == "aa"
		breaks(w.Problem == "" && !approved && noon.Sub(w.Due) > time.Hour, "blind")
		for _, p := range objs {
			selects := func(n *policy.Node) bool { return p.Spec.NodeSelector.MatchLabels == nil || n.Labels != nil }
			if !selects(&c.Nodes[0]) {
				continue
			}
			chosen++
			breaks(p.Spec.Mode == "", "observe")
			breaks(p.Spec.Mode == v1alpha1.ModeApprove && !approved, "approval")
			breaks(p.Spec.Pause, "pause")
			breaks(c.Nodes[0].ControlPlane && !p.Spec.IncludeControlPlane, "control plane")
			base, unready, out := 0, 0, map[string]bool{w.Node: true}
			for i := range c.Nodes {
				n := &c.Nodes[i]
				if !selects(n) || n.ControlPlane && !p.Spec.IncludeControlPlane {
					continue
				}
				base++
				if !n.Ready {
					unready++
				}
				if !n.InService() {
					out[n.Name] = true
				}
			}
			for _, r := range p.Status.Repairs {
				if r.EndTime == nil {
					out[r.Node] = true
				}
				breaks(r.Node == w.Node && (r.EndTime == nil || noon.Sub(r.EndTime.Time) < time.Hour), "busy")
			}
			breaks(unready > 1 && 100*unready >= int(p.Spec.PauseWhenUnhealthyPercent)*base, "storm")
			breaks(len(out) > int(*p.Spec.Budget.MaxNodes), "nodes")
			share := int(*p.Spec.Budget.MaxPercent)
			breaks(100*len(out) > share*base && (len(out) > 1 || share == 0), "percent")
		}
		breaks(chosen == 0, "no policy")
		if (d.Verb == v1alpha1.RemediationRun) != (len(broken) == 0) {
			t.Fatalf("%+v, broken: %v\n%+v\n%+v", d, slices.Compact(broken), c, objs)
		}
	}
	t.Log(verbs)
	for _, v := range []v1alpha1.RemediationVerb{v1alpha1.RemediationRun, v1alpha1.RemediationWouldRun, v1alpha1.RemediationWithheld, v1alpha1.RemediationWait} {
		if verbs[v] < cases/50 {
			t.Errorf("%s: %d times of %d, too few to prove anything", v, verbs[v], cases)
		}
	}
}

func TestPaused(t *testing.T) {
	p, c := enforce(2), nodes(4)
	if d := policy.New(p).Paused(c, noon); d != (policy.Decision{}) {
		t.Errorf("%+v", d)
	}
	c.Nodes[0].Ready, c.Nodes[1].Ready = false, false
	if d := policy.New(p).Paused(c, noon); d.Reason != v1alpha1.ReasonTooManyUnhealthy || d.Message != "at least 30 % of the nodes are not ready (pauseWhenUnhealthyPercent); see status.budget of the policy" {
		t.Errorf("%+v", d)
	}
}

func TestNodeOf(t *testing.T) {
	n := &corev1.Node{}
	n.Name = "n1"
	if have := policy.NodeOf(n); have.Ready || have.Cordoned || have.ControlPlane || have.Name != "n1" {
		t.Errorf("%+v", have)
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}, {Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	if policy.NodeOf(n).Ready {
		t.Error("Unknown is ready")
	}
	n.Status.Conditions[1].Status = corev1.ConditionTrue
	n.Spec.Unschedulable = true
	if have := policy.NodeOf(n); !have.Ready || !have.Cordoned || have.InService() {
		t.Errorf("%+v", have)
	}
	n.Spec.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}
	if !policy.NodeOf(n).ControlPlane {
		t.Error("a control plane's taint")
	}
	n.Spec.Taints, n.Labels = nil, map[string]string{"node-role.kubernetes.io/master": ""}
	if !policy.NodeOf(n).ControlPlane {
		t.Error("a control plane's label")
	}
	n.Labels = map[string]string{"node-role.kubernetes.io/worker": ""}
	if policy.NodeOf(n).ControlPlane {
		t.Error("a worker")
	}
}
