package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

// Each case starts from 20 nodes in service, an enforcing policy with two slots, and a due repair
// of n03, which is allowed.
func TestDecide(t *testing.T) {
	type situation struct {
		p     *v1alpha1.RemediationPolicy
		more  []*v1alpha1.RemediationPolicy
		c     *policy.Cluster
		w     *policy.Want
		again time.Time
	}
	type obj = v1alpha1.RemediationPolicy
	for name, test := range map[string]struct {
		change func(*situation)
		want   string // verb reason: message
	}{
		"runs":             {func(*situation) {}, "Run Allowed: policy default: Enforce"},
		"noPolicy":         {func(s *situation) { s.p.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "b"} }, "WouldRun NoPolicy: no RemediationPolicy selects node n03: Observe"},
		"observeIsDefault": {func(s *situation) { s.p.Spec.Mode = "" }, "WouldRun ObserveOnly: policy default: Observe"},
		"observeTellsWhatEnforceWould": {func(s *situation) { s.p.Spec.Mode, s.p.Spec.Pause = v1alpha1.ModeObserve, true },
			"WouldRun ObserveOnly: policy default: Observe; Enforce would not make it now: Paused: paused"},
		"unknownMode": {func(s *situation) { s.p.Spec.Mode = "Try" }, `Withheld Invalid: policy default: mode: "Try": want one of Observe, Approve, Enforce`},
		"invalidSelectorIsForAll": {func(s *situation) {
			s.more = []*obj{enforce(1)}
			s.more[0].Name = "odd"
			s.more[0].Spec.NodeSelector.MatchExpressions = []v1alpha1.LabelRequirement{{Key: "pool", Operator: "In"}}
		}, "Withheld Invalid: policy odd: nodeSelector: label selector: values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"},
		"noNode":                {func(s *situation) { s.w.Node = "gone" }, "Withheld NodeNotFound: there is no node gone"},
		"controlPlane":          {func(s *situation) { s.c.Nodes[2].ControlPlane = true }, "Withheld ControlPlaneSkipped: policy default: node n03 belongs to the control plane"},
		"controlPlaneIncluded":  {func(s *situation) { s.c.Nodes[2].ControlPlane, s.p.Spec.IncludeControlPlane = true, true }, "Run Allowed: policy default: Enforce"},
		"controlPlaneInObserve": {func(s *situation) { s.c.Nodes[2].ControlPlane, s.p.Spec.Mode = true, "" }, "Withheld ControlPlaneSkipped: policy default: node n03 belongs to the control plane"},
		"paused":                {func(s *situation) { s.p.Spec.Pause = true }, "Wait Paused: policy default: paused"},
		"pausedByAPolicyForAll": {func(s *situation) {
			s.more = []*obj{enforce(0)}
			s.more[0].Name, s.more[0].Spec.Pause = "stop", true
		}, "Wait Paused: policy stop: paused"},
		"eachMustAllow": {func(s *situation) {
			s.more = []*obj{enforce(5)}
			s.more[0].Name, s.more[0].Spec.Mode = "second", v1alpha1.ModeObserve
			s.p.Spec.Pause = true
		}, "WouldRun ObserveOnly: policy second: Observe"},
		"problemGone":  {func(s *situation) { s.w.Problem = v1alpha1.ProblemGone }, "Withheld ProblemResolved: the problem is gone"},
		"blindButSoon": {func(s *situation) { s.w.Problem, s.w.Due = "", noon.Add(-time.Hour) }, "Run Allowed: policy default: Enforce"},
		"blindTooLong": {func(s *situation) { s.w.Problem, s.w.Due = "", noon.Add(-time.Hour-time.Second) },
			"Withheld WaitedTooLong: due since 2026-11-21T10:59:59Z, and after 1h0m0s nothing shows whether the problem lasts"},
		"blindButApproved": {func(s *situation) {
			s.w.Problem, s.w.Due, s.w.Approval = "", noon.Add(-time.Hour*9), &v1alpha1.Approval{PlanDigest: "aa"}
		}, "Run Allowed: policy default: Enforce"},
		"awaitingApproval": {func(s *situation) { s.p.Spec.Mode = v1alpha1.ModeApprove }, "Wait AwaitingApproval: policy default: plan aa awaits approval"},
		"anotherApproval": {func(s *situation) {
			s.p.Spec.Mode, s.w.Approval = v1alpha1.ModeApprove, &v1alpha1.Approval{PlanDigest: "bb"}
		}, "Wait AwaitingApproval: policy default: plan aa awaits approval; another plan is approved, bb"},
		"noDigest": {func(s *situation) {
			s.p.Spec.Mode, s.w.Approval, s.w.Digest = v1alpha1.ModeApprove, &v1alpha1.Approval{}, ""
		}, "Wait AwaitingApproval: policy default: plan  awaits approval; another plan is approved, "},
		"approved": {func(s *situation) {
			s.p.Spec.Mode, s.w.Approval = v1alpha1.ModeApprove, &v1alpha1.Approval{PlanDigest: "aa"}
		}, "Run Allowed: policy default: Approve"},
		"approvedIsHeldToLimits": {func(s *situation) {
			s.p.Spec.Mode, s.w.Approval, s.p.Spec.Pause = v1alpha1.ModeApprove, &v1alpha1.Approval{PlanDigest: "aa"}, true
		}, "Wait Paused: policy default: paused"},
		"budget": {func(s *situation) { underRepair(s.p, "n05"); underRepair(s.p, "n07") },
			"Wait BudgetExhausted: policy default: the budget is used up (maxNodes 2, maxPercent 100); see status.budget of the policy"},
		"budgetOfOthers": {func(s *situation) { s.c.Nodes[4].Ready = false; s.c.Nodes[6].Cordoned = true },
			"Wait BudgetExhausted: policy default: the budget is used up (maxNodes 2, maxPercent 100); see status.budget of the policy"},
		"ownFaultIsNoUse": {func(s *situation) { s.c.Nodes[2].Ready = false; s.c.Nodes[2].Cordoned = true; underRepair(s.p, "n05") }, "Run Allowed: policy default: Enforce"},
		"notChosenIsNoUse": {func(s *situation) {
			s.p.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "a"}
			for _, i := range []int{4, 5, 6} {
				s.c.Nodes[i].Labels, s.c.Nodes[i].Ready = nil, false
			}
		}, "Run Allowed: policy default: Enforce"},
		"repairOfAnUnknownNode": {func(s *situation) { underRepair(s.p, "old"); underRepair(s.p, "n07") },
			"Wait BudgetExhausted: policy default: the budget is used up (maxNodes 2, maxPercent 100); see status.budget of the policy"},
		"percentRoundsDown": {func(s *situation) { *s.p.Spec.Budget.MaxPercent = 9; underRepair(s.p, "n05") },
			"Wait BudgetExhausted: policy default: the budget is used up (maxNodes 2, maxPercent 9); see status.budget of the policy"},
		"percentIsAtLeastOne": {func(s *situation) { *s.p.Spec.Budget.MaxPercent = 1 }, "Run Allowed: policy default: Enforce"},
		"zeroPercentIsNone":   {func(s *situation) { *s.p.Spec.Budget.MaxPercent = 0 }, "Wait BudgetExhausted: policy default: no node may be under repair (maxPercent 0)"},
		"zeroNodes":           {func(s *situation) { *s.p.Spec.Budget.MaxNodes = 0 }, "Wait BudgetExhausted: policy default: no node may be under repair (maxNodes 0)"},
		"percentOfChosenNodes": {func(s *situation) {
			*s.p.Spec.Budget.MaxPercent, *s.p.Spec.Budget.MaxNodes = 10, 9
			s.c.Nodes[19].ControlPlane = true // 19 are left, so the limit is 1
			underRepair(s.p, "n05")
		}, "Wait BudgetExhausted: policy default: the budget is used up (maxNodes 9, maxPercent 10); see status.budget of the policy"},
		"nodeUnderRepair": {func(s *situation) { underRepair(s.p, "n03") },
			"Wait NodeUnderRepair: policy default: cordon by diagnosis uid-x is under way on node n03 since 2026-11-21T11:00:00Z"},
		"nodeUnderOwnRepair": {func(s *situation) { underRepair(s.p, "n03"); s.w.Diagnosis = "uid-x" }, "Run Allowed: policy default: Enforce"},
		"cooldown": {func(s *situation) { ended(s.p, "n03", "drain", 59*time.Minute); s.again = noon.Add(time.Minute) },
			"Wait Cooldown: policy default: node n03 had drain, which ended 2026-11-21T11:01:00Z; cooldown 1h0m0s, until 2026-11-21T12:01:00Z"},
		"cooldownOver": {func(s *situation) { ended(s.p, "n03", "drain", time.Hour) }, "Run Allowed: policy default: Enforce"},
		"cooldownOfItsOwn": {func(s *situation) {
			ended(s.p, "n03", "drain", 2*time.Second)
			s.p.Spec.CooldownPerNode = duration(time.Second)
		}, "Run Allowed: policy default: Enforce"},
		"noCooldown":     {func(s *situation) { ended(s.p, "n03", "drain", 0); s.p.Spec.CooldownPerNode = duration(0) }, "Run Allowed: policy default: Enforce"},
		"othersCooldown": {func(s *situation) { ended(s.p, "n04", "drain", 0); ended(s.p, "n05", "drain", 0) }, "Run Allowed: policy default: Enforce"},
		"storm": {func(s *situation) {
			*s.p.Spec.Budget.MaxNodes = 20
			for i := range 6 {
				s.c.Nodes[i].Ready = false
			}
		}, "Wait TooManyUnhealthy: policy default: at least 30 % of the nodes are not ready (pauseWhenUnhealthyPercent); see status.budget of the policy"},
		// Otherwise nodes at the storm's threshold would cause every waiting repair to be
		// rewritten.
		"budgetBeforeStorm": {func(s *situation) {
			for i := range 6 {
				s.c.Nodes[i].Ready = false
			}
		}, "Wait BudgetExhausted: policy default: the budget is used up (maxNodes 2, maxPercent 100); see status.budget of the policy"},
		"cooldownKeptInBrief": {func(s *situation) {
			s.p.Status.Cooldowns = []v1alpha1.Cooldown{{Node: "n03", EndTime: metav1.NewTime(noon.Add(-59 * time.Minute))}}
			s.again = noon.Add(time.Minute)
		}, "Wait Cooldown: policy default: node n03 had a repair, which ended 2026-11-21T11:01:00Z; cooldown 1h0m0s, until 2026-11-21T12:01:00Z"},
		"noStormYet": {func(s *situation) {
			*s.p.Spec.Budget.MaxNodes = 20
			for i := range 5 {
				s.c.Nodes[i].Ready = false
			}
		}, "Run Allowed: policy default: Enforce"},
		"oneNodeIsNoStorm": {func(s *situation) { s.c = policy.NewCluster(s.c.Nodes[:3]); s.c.Nodes[2].Ready = false }, "Run Allowed: policy default: Enforce"},
		"windowClosed": {func(s *situation) {
			s.p.Spec.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Schedule: "0 22 * * *", Duration: *duration(6 * time.Hour), TimeZone: "Europe/Berlin"}, {Schedule: "0 2 * * 0", Duration: *duration(time.Hour)}}
			s.again = time.Date(2026, 11, 21, 21, 0, 0, 0, time.UTC)
		}, "Wait OutsideMaintenanceWindow: policy default: the next maintenance window opens 2026-11-21T22:00:00+01:00"},
		"windowOpen": {func(s *situation) {
			s.p.Spec.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Schedule: "0 22 * * *", Duration: *duration(6 * time.Hour)}, {Schedule: "0 8 * * 6", Duration: *duration(5*time.Hour + time.Second), TimeZone: "Europe/Berlin"}}
		}, "Run Allowed: policy default: Enforce"},
		"windowNever": {func(s *situation) {
			s.p.Spec.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Schedule: "0 0 30 2 *", Duration: *duration(time.Hour)}}
		}, "Withheld OutsideMaintenanceWindow: policy default: no maintenance window ever opens"},
		"windowOfNoZone": {func(s *situation) {
			s.p.Spec.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Schedule: "0 0 * * *", Duration: *duration(time.Hour), TimeZone: "Europe/Atlantis"}}
		}, "Withheld Invalid: policy default: maintenanceWindows[0].timeZone: unknown time zone Europe/Atlantis"},
		"windowOfNoTime": {func(s *situation) {
			s.p.Spec.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Schedule: "0 25 * * *", Duration: *duration(time.Hour)}}
		}, "Withheld Invalid: policy default: maintenanceWindows[0].schedule: end of range (25) above maximum (23): 25"},
		"latestOfSeveralWaits": {func(s *situation) {
			s.more = []*obj{enforce(2)}
			s.more[0].Name, s.more[0].Spec.CooldownPerNode = "slow", duration(3*time.Hour)
			ended(s.p, "n03", "drain", 59*time.Minute)
			s.more[0].Status = s.p.Status
			s.again = noon.Add(2*time.Hour + time.Minute)
		}, "Wait Cooldown: policy default: node n03 had drain, which ended 2026-11-21T11:01:00Z; cooldown 1h0m0s, until 2026-11-21T12:01:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &situation{p: enforce(2), c: nodes(20), w: want("n03")}
			test.change(s)
			policies := []*policy.Policy{policy.New(s.p)}
			for _, p := range s.more {
				policies = append(policies, policy.New(p))
			}
			d := policy.Decide(policies, s.c, s.w, noon)
			if diff := cmp.Diff(test.want, string(d.Verb)+" "+d.Reason+": "+d.Message); diff != "" {
				t.Error(diff)
			}
			if !d.Again.Equal(s.again) {
				t.Errorf("again %s, want %s", d.Again, s.again)
			}
		})
	}
}

// A truncated message shows that it is truncated.
func TestMessagesAreBounded(t *testing.T) {
	p := enforce(2)
	p.Spec.Mode = v1alpha1.RemediationMode(strings.Repeat("m", 2000))
	d := policy.Decide([]*policy.Policy{policy.New(p)}, nodes(1), want("n01"), noon)
	if d.Reason != v1alpha1.ReasonInvalid || len(d.Message) > v1alpha1.MaxMessageBytes || !strings.HasSuffix(d.Message, "…") {
		t.Errorf("%d bytes: %+v", len(d.Message), d)
	}
}

// The policy's status has the numbers that messages omit because they change with each node.
func TestUse(t *testing.T) {
	p, c := enforce(5), nodes(20)
	*p.Spec.Budget.MaxPercent = 20
	p.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "a"}
	underRepair(p, "n02")
	underRepair(p, "old")
	ended(p, "n05", "drain", time.Minute)
	c.Nodes[2].Ready, c.Nodes[3].Cordoned = false, true
	c.Nodes[18].ControlPlane, c.Nodes[19].Labels, c.Nodes[19].Ready = true, nil, false
	want := v1alpha1.BudgetUse{Nodes: 18, NotReady: 1, Limit: 3, Used: 4, By: []string{"n02: cordon by diagnosis uid-x", "n03: not ready", "n04: cordoned", "old: cordon by diagnosis uid-x"}}
	if diff := cmp.Diff(want, policy.New(p).Use(c)); diff != "" {
		t.Error(diff)
	}
	c = nodes(60)
	for i := range c.Nodes {
		c.Nodes[i].Ready = false
	}
	if u := policy.New(p).Use(c); u.Used != 61 || len(u.By) != 16 {
		t.Errorf("%+v", u)
	}
}
