package operation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/collector/display"
)

// ContainerDetail returns the built-in container-detail.
func ContainerDetail(h Host) Builtin {
	return Builtin{
		Name: "container-detail",
		Doc: "Tells what the API server or kubelet has of a container of a pod of this node: image, state, how it ended last, limits and requests, probes as they are " +
			"configured, and the names of its environment variables, without their values. It fails where neither is asked.",
		Effect:     Collect,
		TenantSafe: true,
		Parameters: append(podParameters(),
			Parameter{Name: "container", Doc: "name of the container; none: that of containerID, else the first of the pod", Kind: String, Max: 63},
			Parameter{Name: "containerID", Doc: "runtime's id of the container", Kind: String, Max: 128}),
		Results: append(podResults(),
			Result{"container", "name of the container"},
			Result{"containerID", "runtime's id of it"},
			Result{"image", "image as it is configured"},
			Result{"imageID", "image that runs"},
			Result{"state", "running, waiting or terminated, and why"},
			Result{"stateMessage", "what the runtime says of that"},
			Result{"since", "when that state began"},
			Result{"ready", "whether it passes its readiness probe"},
			Result{"started", "whether it has passed its startup probe"},
			Result{"restarts", "how often it was started again"},
			Result{"lastReason", "how it ended last: OOMKilled, Error, Completed …; missing: it never did"},
			Result{"lastExitCode", "its exit code then"},
			Result{"lastSignal", "signal that ended it, where the runtime reports it"},
			Result{"lastMessage", "what it left as its termination message"},
			Result{"lastStarted", "when it had started"},
			Result{"lastFinished", "when it ended"},
			Result{"oomKilled", "true: it ended last for want of memory"},
			Result{"limits", "limits of resources: cpu=500m memory=128Mi"},
			Result{"requests", "requests of resources"},
			Result{"memoryLimitBytes", "limit of memory; missing: none"},
			Result{"livenessProbe", "as it is configured: http-get :8080/healthz delay=0s timeout=1s period=10s successes=1 failures=3"},
			Result{"readinessProbe", "likewise"},
			Result{"startupProbe", "likewise"},
			Result{"envNames", "names of its environment variables"},
			noteResult(),
		),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			p, err := h.pod(ctx, call.Parameters)
			if err != nil {
				return Output{}, err
			}
			c, status, err := containerOf(p, call.Parameters["container"], call.Parameters["containerID"])
			if err != nil {
				return Output{}, err
			}
			f := newFinding()
			f.pod(p)
			f.containerSpec(c)
			if status == nil {
				f.note("kubelet has not reported it yet")
			} else {
				f.containerStatus(status)
			}
			return f.output(nil), nil
		},
	}
}

// containerOf finds a container by its name, else by its id, else the first. status is nil
// where there is none yet.
func containerOf(p *corev1.Pod, name, id string) (c *corev1.Container, status *corev1.ContainerStatus, err error) {
	all := slices.Concat(p.Spec.Containers, p.Spec.InitContainers)
	for i := range p.Spec.EphemeralContainers {
		all = append(all, corev1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	statuses := containerStatuses(p)
	if name == "" && id != "" {
		i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return runtimeID(&s) == id || endedAs(&s) == id })
		if i < 0 {
			return nil, nil, fmt.Errorf("pod %s/%s has no container with the id %s", p.Namespace, p.Name, quoted(id))
		}
		name = statuses[i].Name
	}
	for i := range all {
		if name == "" || all[i].Name == name {
			c = &all[i]
			break
		}
	}
	if c == nil {
		return nil, nil, fmt.Errorf("pod %s/%s has no container %s", p.Namespace, p.Name, quoted(name))
	}
	if i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name }); i >= 0 {
		status = &statuses[i]
	}
	return c, status, nil
}

// runtimeID is the runtime's id of a container, without its scheme.
func runtimeID(s *corev1.ContainerStatus) string { return bareID(s.ContainerID) }

// endedAs is the id under which it ran before.
func endedAs(s *corev1.ContainerStatus) string {
	if t := s.LastTerminationState.Terminated; t != nil {
		return bareID(t.ContainerID)
	}
	return ""
}

func bareID(id string) string {
	_, bare, _ := strings.Cut(id, "://")
	return bare
}

func (f *finding) containerSpec(c *corev1.Container) {
	f.text("container", c.Name)
	f.text("image", c.Image)
	f.text("limits", resources(c.Resources.Limits))
	f.text("requests", resources(c.Resources.Requests))
	if m := c.Resources.Limits.Memory(); !m.IsZero() {
		f.int("memoryLimitBytes", m.Value())
	}
	f.text("livenessProbe", probeText(c.LivenessProbe))
	f.text("readinessProbe", probeText(c.ReadinessProbe))
	f.text("startupProbe", probeText(c.StartupProbe))
	var names []string
	for i := range c.Env {
		names = append(names, c.Env[i].Name)
	}
	f.text("envNames", strings.Join(names, " "))
	if len(c.EnvFrom) > 0 {
		f.note("variables of %s are not listed", display.Count(len(c.EnvFrom), "more ConfigMap or Secret"))
	}
}

func (f *finding) containerStatus(s *corev1.ContainerStatus) {
	f.text("containerID", runtimeID(s))
	f.text("imageID", s.ImageID)
	f.text("state", stateText(&s.State))
	f.bool("ready", s.Ready)
	if s.Started != nil {
		f.bool("started", *s.Started)
	}
	f.int("restarts", int64(s.RestartCount))
	last := s.LastTerminationState.Terminated
	switch {
	case s.State.Waiting != nil:
		f.text("stateMessage", s.State.Waiting.Message)
	case s.State.Running != nil:
		f.text("since", s.State.Running.StartedAt.UTC().Format(time.RFC3339))
	case s.State.Terminated != nil:
		last = s.State.Terminated
		f.text("stateMessage", last.Message)
		f.text("since", last.FinishedAt.UTC().Format(time.RFC3339))
	}
	if last == nil {
		return
	}
	f.text("lastReason", last.Reason)
	f.int("lastExitCode", int64(last.ExitCode))
	if last.Signal != 0 {
		f.int("lastSignal", int64(last.Signal))
	}
	f.text("lastMessage", last.Message)
	f.text("lastStarted", last.StartedAt.UTC().Format(time.RFC3339))
	f.text("lastFinished", last.FinishedAt.UTC().Format(time.RFC3339))
	f.bool("oomKilled", last.Reason == "OOMKilled")
}

// resources is "cpu=500m memory=128Mi".
func resources(list corev1.ResourceList) string {
	var out []string
	for name := range list {
		q := list[name]
		out = append(out, string(name)+"="+q.String())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// probeText is a probe as kubectl describes it; headers are left out, for they may have
// secrets, and so are commands.
func probeText(p *corev1.Probe) string {
	if p == nil {
		return ""
	}
	how := "none"
	switch {
	case p.HTTPGet != nil:
		how = strings.ToLower(string(p.HTTPGet.Scheme))
		if how == "" {
			how = "http"
		}
		how += "-get " + p.HTTPGet.Host + ":" + p.HTTPGet.Port.String() + p.HTTPGet.Path
	case p.TCPSocket != nil:
		how = "tcp-socket " + p.TCPSocket.Host + ":" + p.TCPSocket.Port.String()
	case p.GRPC != nil:
		how = fmt.Sprintf("grpc :%d", p.GRPC.Port)
		if p.GRPC.Service != nil && *p.GRPC.Service != "" {
			how += " " + *p.GRPC.Service
		}
	case p.Exec != nil:
		how = "exec"
	}
	return fmt.Sprintf("%s delay=%ds timeout=%ds period=%ds successes=%d failures=%d",
		how, p.InitialDelaySeconds, p.TimeoutSeconds, p.PeriodSeconds, p.SuccessThreshold, p.FailureThreshold)
}
