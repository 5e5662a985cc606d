package probe

import (
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// Bounds of texts in an event: they come from pods and from their answers.
const (
	maxEndpoint = 200
	maxCause    = 300
	maxSaid     = 1000
	maxFact     = 300
	maxFacts    = 16
)

// source is the prefix of Event.Source; the feed follows.
const source = "probe/"

// emitOutcome reports one outcome; the worker's turn is held.
func (m *Manager) emitOutcome(w *worker, kind event.Kind, containerID string, o *Outcome, failures int) {
	ev, data := m.event(w, kind, containerID, o.At)
	data.ProbeOutcome = bounded(&o.Detail)
	data.Feed = w.feed
	data.Failures = uint32(failures)
	ev.Conn = o.Conn
	if o.BootTime != 0 {
		ev.BootTime, ev.CPU = o.BootTime, o.CPU
	}
	m.cfg.Report(ev)
}

// emitEnd reports that the probe of a container is no longer made; the turn is held.
func (m *Manager) emitEnd(w *worker, containerID string, at time.Time) {
	ev, data := m.event(w, event.ProbeRecovered, containerID, at)
	data.Feed, data.Over = w.feed, true
	m.cfg.Report(ev)
}

func (m *Manager) event(w *worker, kind event.Kind, containerID string, at time.Time) (*event.Event, *event.ProbeData) {
	m.mu.Lock()
	pod := w.entry.pod
	m.mu.Unlock()
	spec := w.course.spec
	data := &event.ProbeData{
		Name:      pod.Namespace + "/" + pod.Name + " " + w.key.Container,
		Probe:     string(w.key.Kind),
		Namespace: pod.Namespace, Pod: pod.Name, Container: w.key.Container,
		Handler:   string(spec.Handler),
		Endpoint:  spec.Endpoint(pod),
		Timeout:   event.Duration(spec.Timeout),
		Period:    event.Duration(spec.Period),
		Threshold: uint32(max(spec.FailureThreshold, 1)),
	}
	runtime, id := SplitID(containerID)
	now := time.Now()
	return &event.Event{
		Kind: kind, Time: at, BootTime: event.Duration(hostfs.BootTime() - now.Sub(at)), CPU: event.NoCPU,
		Source:    source + w.feed,
		Container: &event.Container{ID: id, Runtime: runtime, PodUID: w.key.PodUID},
		Probe:     data,
	}, data
}

// bounded returns a copy for the event, with text from pods escaped and cut.
func bounded(d *event.ProbeOutcome) event.ProbeOutcome {
	b := *d
	b.Cause = display.Safe(d.Cause, maxCause)
	b.Said = display.Safe(d.Said, maxSaid)
	b.Status = display.Safe(d.Status, maxFact)
	b.Evidence, b.Excluded = boundedFacts(d.Evidence), boundedFacts(d.Excluded)
	return b
}

func boundedFacts(facts []string) []string {
	if len(facts) == 0 {
		return nil
	}
	out := make([]string, 0, min(len(facts), maxFacts+1))
	for i, f := range facts {
		if i == maxFacts {
			out = append(out, "and "+strconv.Itoa(len(facts)-maxFacts)+" more")
			break
		}
		out = append(out, display.Safe(f, maxFact))
	}
	return out
}

// NoRuntime is the runtime in a container's ID if the real ID is not known.
const NoRuntime = "none"

// SplitID splits a container's ID as in a pod's status, "containerd://8a1f…". Both parts are
// empty if the runtime is NoRuntime.
func SplitID(containerID string) (runtime, id string) {
	runtime, id, ok := strings.Cut(containerID, "://")
	switch {
	case !ok:
		return "", containerID
	case runtime == NoRuntime:
		return "", ""
	}
	return runtime, id
}

// Endpoint returns where a pod's probe goes, "10.0.0.7:8080/healthz", or for Exec the command
// line. It is bounded and escaped.
func (s *Spec) Endpoint(p *Pod) string {
	if s.Handler == Exec {
		return display.Safe(strings.Join(s.Command, " "), maxEndpoint)
	}
	return display.Safe(net.JoinHostPort(s.HostOf(p), strconv.Itoa(int(s.Port)))+s.Path, maxEndpoint)
}

// HostOf returns the address or name that a pod's probe goes to; empty: the pod has no address yet.
func (s *Spec) HostOf(p *Pod) string {
	if s.Host == "" && len(p.Addresses) > 0 {
		return p.Addresses[0].String()
	}
	return s.Host
}
