package agent

import (
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/metrics"
)

// firing returns the problems that fire and are not muted. Subjects that are pods have the pod's name.
func (a *pipeline) firing(problems []problem.Problem) []metrics.FiringProblem {
	var out []metrics.FiringProblem
	for i := range problems {
		p := &problems[i]
		if p.State != problem.Firing || !p.MutedUntil.IsZero() {
			continue
		}
		subject := p.Subject
		if p.Pod != "" {
			subject = "pod " + a.podName(p.Pod)
		}
		out = append(out, metrics.FiringProblem{
			Rule: p.Rule, Reason: p.Reason, Severity: p.Severity, Subject: display.Bounded(subject, maxSubject), Since: p.Since,
		})
	}
	return out
}

// maxSubject bounds a subject used as a label value, in bytes. A pod's namespace and name fit.
const maxSubject = 330

// podName returns a pod's namespace and name, or its UID if they are unknown.
func (a *pipeline) podName(uid string) string {
	if a.pods != nil {
		if p, ok := a.pods.Pod(uid); ok {
			return p.Namespace + "/" + p.Name
		}
	}
	return uid
}
