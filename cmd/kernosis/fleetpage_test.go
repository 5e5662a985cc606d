package main

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/reporter/web"
)

// An agent is silent when its Lease is not renewed, even if the controller does not write that into a
// condition: because there is none, or too many agents are silent at once.
func TestSilentAgentOfTheFleet(t *testing.T) {
	now, silent := time.Now(), 50*time.Second
	for name, test := range map[string]struct {
		ago      time.Duration
		lasts    int32
		draining bool
		want     web.AgentState
	}{
		"an hour ago":             {time.Hour, 40, false, web.AgentSilent},
		"a while ago":             {45 * time.Second, 40, false, web.AgentReporting},
		"just now, clock is fast": {-time.Minute, 40, false, web.AgentReporting},
		"of a Lease that is long": {9 * time.Minute, 600, false, web.AgentReporting},
		"long ago even for it":    {13 * time.Minute, 600, false, web.AgentSilent},
		"ended in order":          {time.Hour, 40, true, web.AgentDraining},
	} {
		renewed := metav1.NewMicroTime(now.Add(-test.ago))
		l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &renewed, LeaseDurationSeconds: &test.lasts}}
		if test.draining {
			l.Annotations = map[string]string{lease.AnnotationDraining: renewed.Format(time.RFC3339)}
		}
		if got := fleetNode(&corev1.Node{}, l, now, silent).Agent; got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	if got := fleetNode(&corev1.Node{}, &coordinationv1.Lease{}, now, silent).Agent; got != web.AgentReporting {
		t.Errorf("a Lease that is new: %s", got)
	}
}
