package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/collector/probe/active"
	"github.com/kernosis/kernosis/collector/process"
)

// Config configures a Runner.
type Config struct {
	FS     hostfs.FS
	Prober *active.Prober
	// Report is called for each event, from several goroutines; the event is valid only during
	// the call.
	Report func(*event.Event)
	// Earlier returns how long ago an earlier run of the agent had the source with this stem up,
	// or false if it did not. May be nil.
	Earlier func(stem string) (ago time.Duration, ok bool)
	Log     *slog.Logger
	Start   time.Time // of the agent's process; see probe.Config
	// Groups creates cgroups for programs; if nil, programs have no cgroup of their own.
	Groups *process.Groups
}

// Runner probes services. Make one with New. It is safe for concurrent use.
type Runner struct {
	cfg     Config
	maker   maker
	manager *probe.Manager
	updates <-chan probe.Update

	adding sync.Mutex // held while services are added and removed, because the Manager calls back
	mu     sync.Mutex
	all    map[string]*state
	order  []string
}

var _ prometheus.Collector = (*Runner)(nil)

// state is the state of one service; the Runner's mu guards it.
type state struct {
	Service
	group *process.Group
	runs  process.Runs // of its program; used only by its worker

	known, up bool          // the latest state of its source
	why       string        // why it is down
	failed    int           // times in a row that the probe could not be made
	counts    [3]uint64     // by probe.Result
	took      time.Duration // of the latest probe
}

// podUID and containerID are the IDs of services in the Manager, which treats services as
// containers of one pod that always runs. Each has a readiness probe, because failures of that kind
// never put a probe on hold.
const podUID = "services"

func containerID(service string) string { return "service://" + service }

// tries is how many times in a row a probe that can't be made is tried, see probe.Prober. The
// next tries follow a period later.
const tries = 3

// New returns a Runner without services.
func New(cfg Config) *Runner {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := &Runner{cfg: cfg, maker: maker{fs: cfg.FS, prober: cfg.Prober}, all: map[string]*state{}}
	r.manager = probe.New(probe.Config{Report: r.handleEvent, Prober: r, Log: cfg.Log, Start: cfg.Start})
	r.updates = r.manager.Results(probe.Readiness).Updates()
	return r
}

// Add adds services, which must have been checked. It returns an error if a name is already in
// use.
func (r *Runner) Add(services ...Service) error {
	r.adding.Lock()
	defer r.adding.Unlock()
	var errs []error
	for _, s := range services {
		errs = append(errs, r.add(s))
	}
	r.show()
	return errors.Join(errs...)
}

// Remove ends the probes of a service, if there is one of this name, and reports that its source is
// gone.
func (r *Runner) Remove(name string) {
	r.adding.Lock()
	defer r.adding.Unlock()
	r.mu.Lock()
	s := r.all[name]
	delete(r.all, name)
	r.order = slices.DeleteFunc(r.order, func(o string) bool { return o == name })
	r.mu.Unlock()
	r.show()
	r.mu.Lock()
	known := s != nil && s.known
	r.mu.Unlock()
	if known {
		r.reportSource(name, event.SourceData{Gone: true})
	}
}

// show updates the Manager's pod with the current services. The caller holds adding.
func (r *Runner) show() {
	pod := &probe.Pod{UID: podUID, Name: "services", Active: true}
	r.mu.Lock()
	for _, name := range r.order {
		s := r.all[name]
		pod.Containers = append(pod.Containers, probe.Container{
			Name: name, ID: containerID(name), State: probe.Running,
			Readiness: &probe.Spec{
				Handler: probe.Handler(s.Handler), Timeout: s.Timeout, Period: s.Period,
				FailureThreshold: s.FailureThreshold, SuccessThreshold: s.SuccessThreshold,
			},
		})
	}
	r.mu.Unlock()
	r.manager.AddPod(pod)
}

func (r *Runner) add(s Service) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all[s.Name] != nil {
		return fmt.Errorf("service %s already exists", s.Name)
	}
	st := &state{Service: s}
	if s.Handler == string(probe.Exec) && r.cfg.Groups != nil {
		var err error
		if st.group, err = r.cfg.Groups.Make(s.Name); err != nil {
			return fmt.Errorf("control group of service %s: %w", s.Name, err)
		}
	}
	r.all[s.Name] = st
	r.order = append(r.order, s.Name)
	return nil
}

// Run probes until ctx ends. It may be called only once.
func (r *Runner) Run(ctx context.Context) error {
	r.keep()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.follow(ctx)
	}()
	err := r.manager.Run(ctx)
	<-done
	return err
}

// keep marks services as known if they were known before the restart, and the restart was shorter
// than the time in which their failures count: within that time their state is known again.
func (r *Runner) keep() {
	if r.cfg.Earlier == nil {
		return
	}
	r.mu.Lock()
	var kept []*state
	for _, name := range r.order {
		s := r.all[name]
		ago, ok := r.cfg.Earlier(event.NamedStem(event.ServiceStem, name))
		if ok && ago < s.Period*time.Duration(s.FailureThreshold) {
			kept = append(kept, s)
		}
	}
	r.mu.Unlock()
	for _, s := range kept {
		r.sees(s, nil)
	}
}

// follow reports the services that count as healthy again: those whose result has changed to
// success. That includes the first success after the start, because earlier failures are not
// known.
func (r *Runner) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-r.updates:
			if u.Result != probe.Success {
				continue
			}
			s := r.state(strings.TrimPrefix(u.ContainerID, containerID("")))
			if s == nil {
				continue
			}
			r.cfg.Report(hostfs.Stamped(event.Event{
				Kind: event.ProbeRecovered, Source: source, Probe: s.data(event.ProbeOutcome{Feed: event.ProbeActive}),
			}))
		}
	}
}

// source is Event.Source.
const source = "probe/" + event.ProbeService

// data returns the event data of the service.
func (s *state) data(o event.ProbeOutcome) *event.ProbeData {
	return &event.ProbeData{
		Name: s.Name, Probe: event.ProbeService, Handler: s.Handler, Endpoint: s.Endpoint(),
		Timeout: event.Duration(s.Timeout), Period: event.Duration(s.Period), Threshold: uint32(s.FailureThreshold), ProbeOutcome: o,
	}
}

// handleEvent handles the Manager's events. A single success of a service is not its recovery
// yet: see follow.
func (r *Runner) handleEvent(ev *event.Event) {
	if ev.Kind != event.Probe {
		return
	}
	s := r.state(ev.Probe.Container)
	if s == nil {
		return
	}
	failures := ev.Probe.Failures
	ev.Probe = s.data(ev.Probe.ProbeOutcome)
	ev.Probe.Failures = failures
	ev.Container, ev.Source = nil, source
	if failures >= ev.Probe.Threshold {
		r.sees(s, nil)
	}
	r.cfg.Report(ev)
}

func (r *Runner) state(name string) *state {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[name]
}

// Probe makes a probe for the Manager. It implements probe.Prober.
func (r *Runner) Probe(ctx context.Context, q *probe.Request) (probe.Outcome, error) {
	s := r.state(q.Container.Name)
	if s == nil {
		return probe.Outcome{}, fmt.Errorf("unknown service %q", q.Container.Name)
	}
	o, err := r.maker.make(ctx, &s.Service, s.group, &s.runs)
	if ctx.Err() != nil {
		return o, ctx.Err()
	}
	r.mu.Lock()
	switch {
	case err != nil:
		s.failed++
	default:
		s.failed, s.took = 0, time.Duration(o.Detail.Duration)
	}
	down := s.failed >= tries
	if err == nil || s.failed%tries == 0 {
		s.counts[result(o.OK, err)]++
	}
	r.mu.Unlock()
	switch {
	case down:
		r.sees(s, err)
	case err == nil && o.OK:
		r.sees(s, nil)
	}
	return o, err
}

func result(ok bool, err error) probe.Result {
	switch {
	case err != nil:
		return probe.Unknown
	case ok:
		return probe.Success
	}
	return probe.Failure
}

// sees reports with a Source event whether the service's state is known. The state is unknown until
// the probe has succeeded or has failed often enough to count, and while the probe can't be made.
func (r *Runner) sees(s *state, err error) {
	why := ""
	if err != nil {
		const most = 200
		why = display.Safe("can't run the probe: "+err.Error(), most)
	}
	r.mu.Lock()
	same := s.known && s.up == (err == nil) && s.why == why
	s.known, s.up, s.why = true, err == nil, why
	r.mu.Unlock()
	if same {
		return
	}
	r.reportSource(s.Name, event.SourceData{Up: err == nil, Reason: why})
}

func (r *Runner) reportSource(name string, d event.SourceData) {
	d.Stem = event.NamedStem(event.ServiceStem, name)
	r.cfg.Report(hostfs.Stamped(event.Event{Kind: event.Source, Source: source, SourceUp: &d}))
}

// Describe implements prometheus.Collector.
func (r *Runner) Describe(ch chan<- *prometheus.Desc) { r.export(probe.Exporter{Descs: ch}) }

// Collect implements prometheus.Collector.
func (r *Runner) Collect(ch chan<- prometheus.Metric) { r.export(probe.Exporter{Metrics: ch}) }

func (r *Runner) export(to probe.Exporter) {
	healthy := to.Metric(prometheus.GaugeValue, "kernosis_service_up", "Whether a service of the node counts as healthy; absent while that is unknown.", "service")
	probes := to.Metric(prometheus.CounterValue, "kernosis_service_probes_total",
		"Probes of a service of the node, by result; unknown: the probe could not be run.", "service", "result")
	seconds := to.Metric(prometheus.GaugeValue, "kernosis_service_probe_seconds", "How long the latest probe of a service took.", "service")
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.order {
		s := r.all[name]
		for result, n := range s.counts {
			probes(float64(n), name, probe.Result(result).String())
		}
		if s.took > 0 {
			seconds(s.took.Seconds(), name)
		}
		if !s.known || !s.up {
			continue
		}
		up := 0.0
		if result, ok := r.manager.Results(probe.Readiness).Get(containerID(name)); ok && result == probe.Success {
			up = 1
		}
		healthy(up, name)
	}
}
