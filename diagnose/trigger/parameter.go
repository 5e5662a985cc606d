package trigger

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

const (
	// maxParameter is the longest parameter in characters.
	maxParameter = 4096
	// maxText bounds foreign text in bytes. Escaping may make it four times as long, and truncation
	// adds one character.
	maxText = 1000
)

// CommonParameters returns the names of the parameters that a source may set besides those of the
// Trigger, in no particular order.
func CommonParameters(s Source) []string {
	pod := []string{"node", "podUID", "podNamespace", "podName", "container"}
	switch s {
	case SourceProblem:
		return append(pod, "rule", "reason", "message", "subject", "condition", "severity",
			"pid", "tgid", "comm", "startTime", "cgroup", "containerID", "device", "deviceNumber", "mountPoint", "fsType",
			"netns", "address", "port", "protocol", "path", "timeout", "source", "limitCgroup", "holderPID")
	case SourceEvent:
		return append(pod, "reason", "message", "subject")
	case SourceAlert:
		return pod
	}
	return []string{"node"}
}

// parameters collects the parameters of a Diagnosis.
type parameters struct {
	values  v1alpha1.Parameters
	omitted []string
}

// text sets a text for people, truncated and escaped as needed.
func (p *parameters) text(name, value string) {
	if value != "" {
		p.values[name] = display.Safe(value, maxText)
	}
}

// exact sets a value that operations use to look something up. If the value can't be passed
// unchanged, exact omits it and lists it in omitted.
func (p *parameters) exact(name, value string) {
	switch {
	case value == "":
	case utf8.RuneCountInString(value) > maxParameter || display.Safe(value, len(value)) != value:
		p.omit(name)
	default:
		p.values[name] = value
	}
}

func (p *parameters) omit(name string) { p.omitted = append(p.omitted, name) }

func (p *parameters) number(name string, value uint32) {
	if value != 0 {
		p.values[name] = strconv.FormatUint(uint64(value), 10)
	}
}

// pod sets the parameters of a known pod.
func (p *parameters) pod(pod *Pod) {
	if pod == nil {
		return
	}
	p.exact("podUID", pod.UID)
	p.exact("podNamespace", pod.Namespace)
	p.exact("podName", pod.Name)
	p.exact("container", pod.Container)
}

// problemParameters returns a problem's parameters for operations, and the names of the omitted
// ones. Facts come from a single event, the principal one, because facts of several events together
// may describe something that never was.
func problemParameters(p *problem.Problem, node string, pod *Pod) (v1alpha1.Parameters, []string) {
	out := &parameters{values: v1alpha1.Parameters{}}
	out.exact("node", node)
	out.exact("rule", p.Rule)
	out.exact("condition", p.Condition)
	out.exact("severity", string(p.Severity))
	out.text("reason", p.Reason)
	out.text("message", p.Message)
	out.text("subject", p.Subject)
	out.pod(pod)
	out.exact("podUID", podOf(p))
	ev := principal(p)
	if ev == nil {
		return out.values, out.omitted
	}
	out.device(ev)
	out.connection(ev)
	out.probe(ev)
	if p.Group != "" { // otherwise the last task hit is only an example
		out.task(ev)
		out.cgroups(ev)
		if c := ev.Container; c != nil && c.PodUID == p.Pod {
			out.exact("containerID", c.ID)
			if validName(c.Name, false) { // it comes from the runtime
				out.exact("container", c.Name)
			}
		}
	}
	out.kernelLine(ev, p.Group != "")
	slices.Sort(out.omitted)
	return out.values, slices.Compact(out.omitted)
}

func (p *parameters) task(ev *event.Event) {
	if t := ev.Task; t != nil {
		p.number("pid", t.PID)
		p.number("tgid", t.TGID)
		p.exact("comm", t.Comm)
		if t.StartTime > 0 {
			p.values["startTime"] = seconds(time.Duration(t.StartTime))
		}
	}
	if h := ev.HungTask; h != nil && h.Holder != nil {
		if h.HolderHint {
			p.omit("holderPID") // the kernel keeps only a hint
		} else {
			p.number("holderPID", h.Holder.PID)
		}
	}
}

// seconds formats a duration exactly, as 73.12s.
func seconds(d time.Duration) string {
	s := fmt.Sprintf("%d.%09d", d/time.Second, d%time.Second)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".") + "s"
}

func (p *parameters) cgroups(ev *event.Event) {
	if ev.Cgroup != nil {
		p.cgroup("cgroup", ev.Cgroup.Path)
	}
	if o := ev.OOMKill; o != nil && o.LimitCgroup != nil {
		p.cgroup("limitCgroup", o.LimitCgroup.Path)
	}
}

// cgroup sets a path that begins at the hierarchy's root. If only the end of a deep path is known,
// cgroup omits it.
func (p *parameters) cgroup(name, path string) {
	if path != "" && path[0] != '/' {
		p.omit(name)
		return
	}
	p.exact(name, path)
}

func (p *parameters) device(ev *event.Event) {
	if d := ev.Device; d != nil {
		number := fmt.Sprintf("%d:%d", d.Major, d.Minor)
		if d.Name != number { // otherwise the device is gone, and its name with it
			p.exact("device", d.Name)
		}
		if d.Major != 0 || d.Minor != 0 {
			p.values["deviceNumber"] = number
		}
		if len(d.Mounts) > 0 {
			p.exact("mountPoint", d.Mounts[0].Path)
			p.exact("fsType", d.Mounts[0].FSType)
		}
	}
	if m := ev.Mount; m != nil {
		p.exact("mountPoint", m.Path)
		p.exact("fsType", m.FSType)
	}
	if f := ev.FSError; f != nil {
		p.exact("fsType", f.FSType)
	}
}

func (p *parameters) connection(ev *event.Event) {
	c := ev.Conn
	if c == nil {
		return
	}
	p.number("netns", c.NetNS)
	if c.Src.IsValid() && !c.Src.Addr().IsUnspecified() {
		p.values["source"] = c.Src.Addr().Unmap().WithZone("").String()
	}
	if c.Dst.IsValid() {
		p.values["address"] = c.Dst.Addr().Unmap().WithZone("").String()
		p.number("port", uint32(c.Dst.Port()))
		p.values["protocol"] = "tcp"
	}
}

// probe sets the parameters of a probe. The network must be checked from where the probe came, which
// is not the pod that it is about: without a known connection, from the node's. So the pod's UID is
// omitted, because operations would enter that pod; its names and cgroup remain, and
// [AnnotationPodUID].
func (p *parameters) probe(ev *event.Event) {
	d := ev.Probe
	if d == nil {
		return
	}
	if d.Timeout > 0 {
		p.values["timeout"] = seconds(time.Duration(d.Timeout))
	}
	switch d.Handler {
	case "http", "https", "tcp", "grpc":
	default:
		return
	}
	p.values["protocol"] = d.Handler
	delete(p.values, "podUID")
	if c := ev.Conn; c == nil {
		// The endpoint is kubelet's; host names are not resolved here.
		host, rest, _ := strings.Cut(d.Endpoint, "/")
		if at, err := netip.ParseAddrPort(host); err == nil {
			p.values["address"] = at.Addr().Unmap().WithZone("").String()
			p.number("port", uint32(at.Port()))
		}
		d = &event.ProbeData{Handler: d.Handler, Endpoint: "/" + rest}
	}
	if _, path, ok := strings.Cut(d.Endpoint, "/"); ok && (d.Handler == "http" || d.Handler == "https") {
		p.exact("path", "/"+path)
	}
}

// kernelLine sets the values that a pattern has captured in a log line of the kernel. It ignores
// other lines, because any program can write them.
func (p *parameters) kernelLine(ev *event.Event, who bool) {
	if ev.Log == nil || ev.Log.Origin != "kernel" {
		return
	}
	if _, known := p.values["device"]; !known {
		p.exact("device", ev.Log.Captures["device"])
	}
	if _, known := p.values["pid"]; known || !who {
		return
	}
	if pid, err := strconv.ParseUint(ev.Log.Captures["pid"], 10, 32); err == nil {
		p.number("pid", uint32(pid))
	}
	p.exact("comm", ev.Log.Captures["comm"])
}
