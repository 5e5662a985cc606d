package agent

import (
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/detector/problem"
)

// firing returns the problems that fire and are not muted. Subjects that are pods have the pod's name.
func (a *pipeline) firing(problems []problem.Problem) (out []problem.Problem) {
	for _, p := range problems {
		if p.State != problem.Firing || !p.MutedUntil.IsZero() {
			continue
		}
		if p.Pod != "" {
			p.Subject = "pod " + a.podName(p.Pod)
		}
		p.Subject = display.Bounded(p.Subject, maxSubject)
		out = append(out, p)
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
