package pod

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func ContainerDetail(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "container-detail",
		Doc: "Describes a container of a pod of this node: image, state, last termination, limits and requests, configured probes, and the names, not " +
			"values, of its environment variables. Fails without an API server or kubelet to query.",
		Effect:     operation.Collect,
		TenantSafe: true,
		Parameters: append(podParameters(),
			operation.Parameter{Name: "container", Doc: "name of the container. Defaults to the container with containerID, or else to the pod's first", Kind: operation.String, Max: 63},
			operation.Parameter{Name: "containerID", Doc: "runtime's ID of the container", Kind: operation.String, Max: 128}),
		Results: append(podResults(),
			operation.Result{Name: "container", Doc: "name of the container"},
			operation.Result{Name: "containerID", Doc: "its runtime ID"},
			operation.Result{Name: "image", Doc: "configured image"},
			operation.Result{Name: "imageID", Doc: "running image"},
			operation.Result{Name: "state", Doc: "running, waiting or terminated, and why"},
			operation.Result{Name: "stateMessage", Doc: "the runtime's message on that state"},
			operation.Result{Name: "since", Doc: "start of that state"},
			operation.Result{Name: "ready", Doc: "whether it passes its readiness probe"},
			operation.Result{Name: "started", Doc: "whether it has passed its startup probe"},
			operation.Result{Name: "restarts", Doc: "number of restarts"},
			operation.Result{Name: "lastReason", Doc: "last termination: OOMKilled, Error, Completed …; missing: never terminated"},
			operation.Result{Name: "lastExitCode", Doc: "its exit code"},
			operation.Result{Name: "lastSignal", Doc: "its signal, if the runtime reports it"},
			operation.Result{Name: "lastMessage", Doc: "its termination message"},
			operation.Result{Name: "lastStarted", Doc: "when that run started"},
			operation.Result{Name: "lastFinished", Doc: "when it ended"},
			operation.Result{Name: "oomKilled", Doc: "true: out of memory caused the last termination"},
			operation.Result{Name: "limits", Doc: "resource limits: cpu=500m memory=128Mi"},
			operation.Result{Name: "requests", Doc: "resource requests"},
			operation.Result{Name: "memoryLimitBytes", Doc: "memory limit; missing: none"},
			operation.Result{Name: "livenessProbe", Doc: "as configured: http-get :8080/healthz delay=0s timeout=1s period=10s successes=1 failures=3"},
			operation.Result{Name: "readinessProbe", Doc: "likewise"},
			operation.Result{Name: "startupProbe", Doc: "likewise"},
			operation.Result{Name: "envNames", Doc: "names of its environment variables"},
			operation.NoteResult(),
		),
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			p, err := host(h).findPod(ctx, call.Parameters)
			if err != nil {
				return operation.Output{}, err
			}
			c, status, err := containerOf(p, call.Parameters["container"], call.Parameters["containerID"])
			if err != nil {
				return operation.Output{}, err
			}
			f := operation.NewFinding()
			reportPod(f, p)
			reportContainerSpec(f, c)
			if status == nil {
				f.Note("kubelet has not reported it yet")
			} else {
				reportContainerStatus(f, status)
			}
			return f.Output(nil), nil
		},
	}
}

// containerOf finds a container by name, or else by id, or else returns the first. status is nil if
// there is none yet.
func containerOf(p *corev1.Pod, name, id string) (c *corev1.Container, status *corev1.ContainerStatus, err error) {
	all := slices.Concat(p.Spec.Containers, p.Spec.InitContainers)
	for i := range p.Spec.EphemeralContainers {
		all = append(all, corev1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	statuses := containerStatuses(p)
	if name == "" && id != "" {
		i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return bareID(s.ContainerID) == id || endedAs(&s) == id })
		if i < 0 {
			return nil, nil, fmt.Errorf("pod %s/%s has no container with the id %s", p.Namespace, p.Name, operation.Quoted(id))
		}
		name = statuses[i].Name
	}
	at := slices.IndexFunc(all, func(c corev1.Container) bool { return name == "" || c.Name == name })
	if at < 0 {
		return nil, nil, fmt.Errorf("pod %s/%s has no container %s", p.Namespace, p.Name, operation.Quoted(name))
	}
	c = &all[at]
	if i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name }); i >= 0 {
		status = &statuses[i]
	}
	return c, status, nil
}

// endedAs returns the id of the container's previous instance.
func endedAs(s *corev1.ContainerStatus) string {
	if t := s.LastTerminationState.Terminated; t != nil {
		return bareID(t.ContainerID)
	}
	return ""
}

// bareID returns the runtime's id of a container, without the scheme.
func bareID(id string) string {
	_, bare, _ := strings.Cut(id, "://")
	return bare
}

func reportContainerSpec(f *operation.Finding, c *corev1.Container) {
	f.Text("container", c.Name)
	f.Text("image", c.Image)
	f.Text("limits", resources(c.Resources.Limits))
	f.Text("requests", resources(c.Resources.Requests))
	if m := c.Resources.Limits.Memory(); !m.IsZero() {
		f.Int("memoryLimitBytes", m.Value())
	}
	f.Text("livenessProbe", probeText(c.LivenessProbe))
	f.Text("readinessProbe", probeText(c.ReadinessProbe))
	f.Text("startupProbe", probeText(c.StartupProbe))
	var names []string
	for i := range c.Env {
		names = append(names, c.Env[i].Name)
	}
	f.Text("envNames", strings.Join(names, " "))
	if len(c.EnvFrom) > 0 {
		f.Note("variables of %s are not listed", display.Count(len(c.EnvFrom), "more ConfigMap or Secret"))
	}
}

func reportContainerStatus(f *operation.Finding, s *corev1.ContainerStatus) {
	f.Text("containerID", bareID(s.ContainerID))
	f.Text("imageID", s.ImageID)
	f.Text("state", stateText(&s.State))
	f.Bool("ready", s.Ready)
	if s.Started != nil {
		f.Bool("started", *s.Started)
	}
	f.Int("restarts", int64(s.RestartCount))
	last := s.LastTerminationState.Terminated
	switch {
	case s.State.Waiting != nil:
		f.Text("stateMessage", s.State.Waiting.Message)
	case s.State.Running != nil:
		f.Text("since", s.State.Running.StartedAt.UTC().Format(time.RFC3339))
	case s.State.Terminated != nil:
		last = s.State.Terminated
		f.Text("stateMessage", last.Message)
		f.Text("since", last.FinishedAt.UTC().Format(time.RFC3339))
	}
	if last == nil {
		return
	}
	f.Text("lastReason", last.Reason)
	f.Int("lastExitCode", int64(last.ExitCode))
	if last.Signal != 0 {
		f.Int("lastSignal", int64(last.Signal))
	}
	f.Text("lastMessage", last.Message)
	f.Text("lastStarted", last.StartedAt.UTC().Format(time.RFC3339))
	f.Text("lastFinished", last.FinishedAt.UTC().Format(time.RFC3339))
	f.Bool("oomKilled", last.Reason == "OOMKilled")
}

// resources formats a list as "cpu=500m memory=128Mi".
func resources(list corev1.ResourceList) string {
	var out []string
	for name := range list {
		q := list[name]
		out = append(out, string(name)+"="+q.String())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// probeText formats a probe like kubectl does. It leaves out headers and commands, because they may
// contain secrets.
func probeText(p *corev1.Probe) string {
	if p == nil {
		return ""
	}
	how := "none"
	switch {
	case p.HTTPGet != nil:
		how = strings.ToLower(cmp.Or(string(p.HTTPGet.Scheme), "http"))
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
