package pods

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/probe"
)

// maxID bounds a container's ID, which usually is a runtime's name and 64 hex digits.
const maxID = 256

// containers adds the pod's containers and sidecars. Other init containers have no probes.
func containers(pod *probe.Pod, p *corev1.Pod, at FieldError) error {
	if n := len(p.Spec.Containers) + len(p.Spec.InitContainers); n > maxContainers {
		return at.wrong("spec.containers", "%d containers, at most %d are supported", n, maxContainers)
	}
	all := allRestart(p)
	// Containers may have their own policies and rules; then container decides for each.
	ruled := func(c corev1.Container) bool { return len(c.RestartPolicyRules) > 0 }
	own := func(c corev1.Container) bool { return c.RestartPolicy != nil || ruled(c) }
	pod.RestartNever = p.Spec.RestartPolicy == corev1.RestartPolicyNever && !all &&
		!slices.ContainsFunc(p.Spec.Containers, own) && !slices.ContainsFunc(p.Spec.InitContainers, ruled)
	var errs []error
	add := func(list string, i int, c *corev1.Container) {
		at := at
		at.Container, at.Path = c.Name, fmt.Sprintf("%s[%d]", list, i)
		container, err := container(p, c, at, all)
		if err != nil {
			errs = append(errs, err)
		}
		if container == nil {
			return
		}
		if slices.ContainsFunc(pod.Containers, func(o probe.Container) bool { return o.Name == container.Name }) {
			errs = append(errs, at.wrong("name", "another container has this name"))
			return
		}
		pod.Containers = append(pod.Containers, *container)
	}
	for i := range p.Spec.Containers {
		add("spec.containers", i, &p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; isSidecar(c) {
			add("spec.initContainers", i, c)
		}
	}
	pod.Containers = slices.Clip(pod.Containers)
	return errors.Join(errs...)
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func container(p *corev1.Pod, c *corev1.Container, at FieldError, all bool) (*probe.Container, error) {
	if why := validation.IsDNS1123Label(c.Name); len(why) > 0 {
		return nil, at.wrong("name", "%s: %s", quoted(c.Name), why[0])
	}
	out := &probe.Container{Name: c.Name, State: probe.Waiting, CPULimit: c.Resources.Limits.Cpu().MilliValue()}
	if own := c.Resources.Limits.Cpu(); own.IsZero() && p.Spec.Resources != nil {
		out.CPULimit = p.Spec.Resources.Limits.Cpu().MilliValue()
	}
	st := status(p.Status.ContainerStatuses, c.Name)
	if slices.ContainsFunc(p.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Name }) {
		out.Sidecar = true
		st = status(p.Status.InitContainerStatuses, c.Name)
	}
	var errs []error
	if st != nil {
		if len(st.ContainerID) > maxID || display.Safe(st.ContainerID, maxID) != st.ContainerID {
			return nil, at.wrong("", "%s is not a container ID", quoted(st.ContainerID))
		}
		setStatus(out, st)
		if st.State.Terminated != nil {
			out.Final = !all && !restarts(p, c, st.State.Terminated.ExitCode)
		}
	}
	for _, k := range []struct {
		kind  probe.Kind
		field string
		from  *corev1.Probe
		to    **probe.Spec
	}{
		{probe.Startup, "startupProbe", c.StartupProbe, &out.Startup},
		{probe.Liveness, "livenessProbe", c.LivenessProbe, &out.Liveness},
		{probe.Readiness, "readinessProbe", c.ReadinessProbe, &out.Readiness},
	} {
		if k.from == nil {
			continue
		}
		at := at
		at.Probe, at.Path = string(k.kind), at.Path+"."+k.field
		var err error
		if *k.to, err = spec(k.from, c, at); err != nil {
			errs = append(errs, err)
		}
	}
	return out, errors.Join(errs...)
}

func status(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

// setStatus copies the container's status as reported by kubelet.
func setStatus(c *probe.Container, st *corev1.ContainerStatus) {
	c.ID, c.Ready, c.Started = st.ContainerID, st.Ready, st.Started != nil && *st.Started
	switch {
	case st.State.Running != nil:
		c.State, c.StartedAt = probe.Running, st.State.Running.StartedAt.Time
	case st.State.Terminated != nil:
		c.State = probe.Ended
	}
	// The limit in force, which an in-place resize may have changed.
	if st.Resources != nil {
		if limit, ok := st.Resources.Limits[corev1.ResourceCPU]; ok {
			c.CPULimit = limit.MilliValue()
		}
	}
}

// restarts reports whether kubelet restarts a container that has ended, by the container's own
// rules and policy, else by the pod's.
func restarts(p *corev1.Pod, c *corev1.Container, exitCode int32) bool {
	policy := p.Spec.RestartPolicy
	if c.RestartPolicy != nil {
		if r := rule(c, exitCode); r != nil && (r.Action == corev1.ContainerRestartRuleActionRestart ||
			r.Action == corev1.ContainerRestartRuleActionRestartAllContainers) {
			return true
		}
		policy = corev1.RestartPolicy(*c.RestartPolicy)
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return exitCode != 0
	}
	return true
}

// rule returns the first of the container's rules that matches an exit code, or nil.
func rule(c *corev1.Container, exitCode int32) *corev1.ContainerRestartRule {
	for i := range c.RestartPolicyRules {
		r := &c.RestartPolicyRules[i]
		if r.ExitCodes == nil {
			continue
		}
		listed := slices.Contains(r.ExitCodes.Values, exitCode)
		if listed && r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn ||
			!listed && r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpNotIn {
			return r
		}
	}
	return nil
}

// allRestart reports whether the end of one container restarts all containers of the pod.
func allRestart(p *corev1.Pod) bool {
	if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.AllContainersRestarting && c.Status == corev1.ConditionTrue
	}) {
		return true
	}
	ended := func(containers []corev1.Container, statuses []corev1.ContainerStatus) bool {
		for i := range containers {
			st := status(statuses, containers[i].Name)
			if st == nil || st.State.Terminated == nil {
				continue
			}
			if r := rule(&containers[i], st.State.Terminated.ExitCode); r != nil && r.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
				return true
			}
		}
		return false
	}
	return ended(p.Spec.Containers, p.Status.ContainerStatuses) || ended(p.Spec.InitContainers, p.Status.InitContainerStatuses)
}

// maxText bounds the total length of one probe's texts: path, headers, service, command. A longer
// script belongs in a file.
const maxText = 16 << 10

// spec returns one probe with its defaults filled in.
func spec(p *corev1.Probe, c *corev1.Container, at FieldError) (*probe.Spec, error) {
	s := &probe.Spec{
		InitialDelay:     seconds(p.InitialDelaySeconds),
		Timeout:          cmp.Or(seconds(p.TimeoutSeconds), probe.DefaultTimeout),
		Period:           cmp.Or(seconds(p.PeriodSeconds), probe.DefaultPeriod),
		SuccessThreshold: cmp.Or(int(p.SuccessThreshold), probe.DefaultSuccessThreshold),
		FailureThreshold: cmp.Or(int(p.FailureThreshold), probe.DefaultFailureThreshold),
	}
	for _, n := range []struct {
		field string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds},
		{"timeoutSeconds", p.TimeoutSeconds},
		{"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold},
		{"failureThreshold", p.FailureThreshold},
	} {
		if n.value < 0 {
			return nil, at.wrong(n.field, "%d is less than 0", n.value)
		}
	}
	var err error
	handlers := 0
	if p.HTTPGet != nil {
		handlers, err = handlers+1, httpGet(s, p.HTTPGet, c, at)
	}
	if p.TCPSocket != nil && err == nil {
		s.Handler, s.Host = probe.TCP, p.TCPSocket.Host
		handlers++
		s.Port, err = port(p.TCPSocket.Port, c, "tcpSocket.port", at)
	}
	if p.GRPC != nil && err == nil {
		s.Handler = probe.GRPC
		handlers++
		if p.GRPC.Service != nil {
			s.Service = *p.GRPC.Service
		}
		s.Port, err = port(intstr.FromInt32(p.GRPC.Port), c, "grpc.port", at)
	}
	if p.Exec != nil && err == nil {
		s.Handler = probe.Exec
		handlers++
		if len(p.Exec.Command) == 0 {
			return nil, at.wrong("exec.command", "missing")
		}
		s.Command = slices.Clone(p.Exec.Command)
	}
	switch {
	case err != nil:
		return nil, err
	case handlers == 0:
		return nil, at.wrong("", "no httpGet, tcpSocket, grpc or exec")
	case handlers > 1:
		return nil, at.wrong("", "more than one of httpGet, tcpSocket, grpc and exec")
	}
	if n := size(s); n > maxText {
		return nil, at.wrong("", "%d bytes of text, at most %d are kept", n, maxText)
	}
	return s, nil
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

func httpGet(s *probe.Spec, g *corev1.HTTPGetAction, c *corev1.Container, at FieldError) error {
	switch g.Scheme {
	case corev1.URISchemeHTTP, "":
		s.Handler = probe.HTTP
	case corev1.URISchemeHTTPS:
		s.Handler = probe.HTTPS
	default:
		return at.wrong("httpGet.scheme", "%s: want HTTP or HTTPS", quoted(string(g.Scheme)))
	}
	var err error
	if s.Port, err = port(g.Port, c, "httpGet.port", at); err != nil {
		return err
	}
	s.Host, s.Path = g.Host, path(g.Path)
	for _, h := range g.HTTPHeaders {
		if s.Headers == nil {
			s.Headers = http.Header{}
		}
		s.Headers.Add(h.Name, h.Value)
	}
	return nil
}

// path returns the path and query that kubelet requests, escaped. text may be a URL; if it can't
// be parsed as one, it is taken as a path.
func path(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		u = &url.URL{Path: text}
	}
	p := (&url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery, ForceQuery: u.ForceQuery}).RequestURI()
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	return p
}

// port returns a port's number; p may be the name of one of the container's ports.
func port(p intstr.IntOrString, c *corev1.Container, field string, at FieldError) (uint16, error) {
	n := p.IntValue()
	if p.Type == intstr.String {
		n = -1
		for i := range c.Ports {
			if c.Ports[i].Name == p.StrVal {
				n = int(c.Ports[i].ContainerPort)
				break
			}
		}
		if n == -1 {
			var err error
			if n, err = strconv.Atoi(p.StrVal); err != nil {
				return 0, at.wrong(field, "the container has no port named %s", quoted(p.StrVal))
			}
		}
	}
	if n < 1 || n > 65535 {
		return 0, at.wrong(field, "%d is not a port", n)
	}
	return uint16(n), nil
}

func size(s *probe.Spec) int {
	n := len(s.Host) + len(s.Path) + len(s.Service)
	for name, values := range s.Headers {
		for _, value := range values {
			n += len(name) + len(value)
		}
	}
	for _, arg := range s.Command {
		n += len(arg)
	}
	return n
}
