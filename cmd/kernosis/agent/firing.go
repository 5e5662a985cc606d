package agent

import (
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/metrics"
)

// firing returns the problems that fire and are not muted, with pods by their names.
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

// maxSubject is the most bytes that a subject may have as a label: a pod's namespace and name fit.
const maxSubject = 330

// podName is a pod's namespace and name, or its UID where they are not known.
func (a *pipeline) podName(uid string) string {
	if a.pods != nil {
		if p, ok := a.pods.Pod(uid); ok {
			return p.Namespace + "/" + p.Name
		}
	}
	return uid
}
