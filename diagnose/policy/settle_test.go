package policy_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

// The whole table of settlements: in service or not, gone, gentle or not, in time or overdue.
func TestSettle(t *testing.T) {
	const keep, end, remove = policy.Keep, policy.End, policy.Remove
	up := &policy.Node{Ready: true}
	for _, test := range []struct {
		holder  policy.Holder
		node    *policy.Node
		gentle  bool
		early   policy.Settlement
		overdue policy.Settlement
	}{
		{policy.HolderRuns, up, false, keep, keep},
		{policy.HolderRuns, nil, false, remove, remove},
		{policy.HolderIdle, up, false, remove, remove},
		{policy.HolderHelped, up, false, end, end},
		{policy.HolderHelped, &policy.Node{Ready: true, Cordoned: true}, false, end, end}, // it is cordoned, and uses the budget because of that
		{policy.HolderNotHelped, up, false, end, end},
		{policy.HolderNotHelped, &policy.Node{}, false, keep, keep},
		{policy.HolderNotHelped, &policy.Node{}, true, end, end},
		{policy.HolderLost, up, false, keep, end},
		{policy.HolderLost, &policy.Node{}, false, keep, keep},
		{policy.HolderLost, &policy.Node{Ready: true, Cordoned: true}, false, keep, keep},
		{policy.HolderLost, &policy.Node{}, true, keep, end},
		{policy.HolderLost, nil, false, remove, remove},
	} {
		r := &v1alpha1.Repair{Node: "n1", Diagnosis: "uid", Operation: "drain", StartTime: metav1.NewTime(noon)}
		f := &policy.Facts{Now: noon.Add(5*time.Minute - 1), Node: test.node, Holder: test.holder, Gentle: test.gentle}
		if have := policy.Settle(r, f, 5*time.Minute); have != test.early {
			t.Errorf("%+v: early %s", test, have)
		}
		f.Now = noon.Add(5 * time.Minute)
		if have := policy.Settle(r, f, 5*time.Minute); have != test.overdue {
			t.Errorf("%+v: overdue %s", test, have)
		}
		f.HolderEnded = noon.Add(time.Minute) // the time counts from there
		if have := policy.Settle(r, f, 5*time.Minute); have != test.early {
			t.Errorf("%+v: after the diagnosis' end %s", test, have)
		}
	}
}

func TestHolderOf(t *testing.T) {
	verified := func(s metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue}, {Type: v1alpha1.ConditionVerified, Status: s}}
	}
	for _, test := range []struct {
		status   *v1alpha1.DiagnosisStatus
		repaired bool
		want     policy.Holder
	}{
		{nil, true, policy.HolderLost},
		{&v1alpha1.DiagnosisStatus{}, false, policy.HolderRuns},
		{&v1alpha1.DiagnosisStatus{Phase: v1alpha1.PhaseRunning}, true, policy.HolderRuns},
		{&v1alpha1.DiagnosisStatus{Phase: v1alpha1.PhaseRunning, Conditions: verified("False")}, true, policy.HolderRuns}, // it continues with its next repair
		{&v1alpha1.DiagnosisStatus{Phase: v1alpha1.PhaseSucceeded}, false, policy.HolderIdle},
		{&v1alpha1.DiagnosisStatus{Phase: v1alpha1.PhaseCancelled}, false, policy.HolderIdle},
		{&v1alpha1.DiagnosisStatus{Phase: v1alpha1.PhaseFailed}, true, policy.HolderLost},
		{&v1alpha1.DiagnosisStatus{Phase: v1alpha1.PhaseUnknown}, false, policy.HolderLost},
		{&v1alpha1.DiagnosisStatus{Phase: v1alpha1.PhaseSucceeded, Conditions: verified("True")}, true, policy.HolderHelped},
		{&v1alpha1.DiagnosisStatus{Phase: v1alpha1.PhaseSucceeded, Conditions: verified("False")}, true, policy.HolderNotHelped},
		{&v1alpha1.DiagnosisStatus{Phase: v1alpha1.PhaseSucceeded, Conditions: verified("Unknown")}, true, policy.HolderLost},
	} {
		var d *v1alpha1.Diagnosis
		if test.status != nil {
			d = &v1alpha1.Diagnosis{Status: *test.status}
		}
		if have := policy.HolderOf(d, test.repaired); have != test.want {
			t.Errorf("%+v, repaired %v: %s", test.status, test.repaired, have)
		}
	}
}
