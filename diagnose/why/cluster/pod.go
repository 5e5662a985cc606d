package cluster

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/diagnose/why"
)

// pod reads the pod's object.
func (r *reader) pod(p *corev1.Pod) {
	s := &r.in.Subject
	s.UID, s.Node, s.Phase = string(p.UID), p.Spec.NodeName, string(p.Status.Phase)
	s.Reason, s.Message = p.Status.Reason, p.Status.Message
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && s.Reason == "" {
			s.Reason, s.Message = c.Reason, c.Message
		}
	}
	r.in.Pods[s.UID] = s.Namespace + "/" + s.Name
	if hash := pods.Hash(&p.ObjectMeta); hash != "" {
		r.in.Pods[hash] = s.Namespace + "/" + s.Name
		s.UID = hash
	}
	specs := map[string]*corev1.Container{}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			specs[list[i].Name] = &list[i]
		}
	}
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			r.in.Containers = append(r.in.Containers, status(&list[i], specs[list[i].Name]))
		}
	}
}

func status(c *corev1.ContainerStatus, spec *corev1.Container) why.Container {
	out := why.Container{Name: c.Name, ID: bare(c.ContainerID), Ready: c.Ready, Restarts: int(c.RestartCount)}
	if spec != nil {
		if q, ok := spec.Resources.Limits[corev1.ResourceMemory]; ok {
			out.MemoryLimit = q.String()
		}
		if q, ok := spec.Resources.Limits[corev1.ResourceCPU]; ok {
			out.CPULimit = q.String()
		}
	}
	switch {
	case c.State.Running != nil:
		out.Running, out.Since = true, c.State.Running.StartedAt.Time
	case c.State.Waiting != nil:
		out.Waiting, out.Message = c.State.Waiting.Reason, c.State.Waiting.Message
	}
	out.Ended, out.Before = ending(c.State.Terminated), ending(c.LastTerminationState.Terminated)
	return out
}

func ending(t *corev1.ContainerStateTerminated) *why.Ending {
	if t == nil {
		return nil
	}
	return &why.Ending{At: t.FinishedAt.Time, Reason: t.Reason, Code: int(t.ExitCode), Message: t.Message, ID: bare(t.ContainerID)}
}

// bare returns a container's id without the runtime.
func bare(id string) string {
	if _, rest, ok := strings.Cut(id, "://"); ok {
		return rest
	}
	return id
}
