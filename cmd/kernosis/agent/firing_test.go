package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/detector/problem"
)

// onePod knows one pod.
type onePod struct {
	nodePods
	pod pods.Pod
}

func (o onePod) Pod(uid string) (pods.Pod, bool) { return o.pod, uid == o.pod.UID }

// Alerts and dashboards name the pod or device of a problem that fires, and no other problem.
func TestFiringNamesItsSubject(t *testing.T) {
	a := &pipeline{pods: onePod{pod: pods.Pod{UID: "4a1f", Namespace: "shop", Name: "web-1"}}}
	since := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	got := a.firing([]problem.Problem{
		{Rule: "oom-kill", Reason: "OOMKilling", Severity: problem.Warning, State: problem.Firing, Subject: "pod 4a1f container 8a8a", Pod: "4a1f", Since: since},
		{Rule: "oom-kill", Reason: "OOMKilling", Severity: problem.Warning, State: problem.Firing, Subject: "pod 77b0 container 12ab", Pod: "77b0", Since: since},
		{Rule: "disk-io-error", Reason: "DiskIOError", Severity: problem.Warning, State: problem.Firing, Subject: "sda\x1b[31m" + strings.Repeat("x", 1000), Since: since},
		{Rule: "resolved", State: problem.Resolved, Subject: "sdb"},
		{Rule: "pending", State: problem.Pending, Subject: "sdc"},
		{Rule: "muted", State: problem.Firing, Subject: "sdd", MutedUntil: since},
	})
	var subjects []string
	for _, p := range got {
		subjects = append(subjects, p.Subject)
	}
	if len(got) != 3 || !slices.Equal(subjects[:2], []string{"pod shop/web-1", "pod 77b0"}) {
		t.Fatalf("%+v", got)
	}
	if s := subjects[2]; !strings.HasPrefix(s, `sda\x1b[31mxxx`) || len(s) > maxSubject {
		t.Errorf("%d bytes: %q", len(s), s)
	}
}
