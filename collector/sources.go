package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf/rlimit"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
)

// Config configures the sources.
type Config struct {
	// HostRoot is the folder that contains the host's /proc and /sys: "/", or where a container
	// mounts the host's root, such as "/host".
	HostRoot string
	// PinRoot, on a BPF filesystem, keeps programs and rings across restarts; empty: none.
	PinRoot string
	// HungTaskAfter is how long a task must be blocked to be reported; zero: the kernel's
	// hung_task_timeout_secs, or 120 s if khungtaskd is off.
	HungTaskAfter time.Duration
	// Targets are the probe targets to watch, besides those in TargetsDir.
	Targets []Target
	// TargetsDir is a folder with files of probe targets, read again when they change; empty: none.
	TargetsDir string
	// TargetSources are the sources that will call SetTargets. Targets of an earlier run stay
	// watched until each source has called.
	TargetSources []string
	// NamePod adds the names of a container's pod if the runtime's files lack them. May be nil.
	NamePod func(*event.Container)
	// Seen reports whether Emit will ignore an event because an earlier run has handled it. May be nil.
	Seen func(*event.Event) bool
}

// Sources is everything that an agent collects from on this machine.
type Sources struct {
	env       *environment
	stems     []*stem
	pins      *bpf.PinRoot // nil: nothing is pinned
	noPins    error        // why nothing is pinned although it should be
	kernelErr error        // why no program can be loaded
	memlock   error        // why the limit of locked memory could not be raised
	mounts    *mountSource
	stalls    *diskStallSource
	gauges    *gaugeSource
}

// Open attaches the programs that this machine allows. It logs the names of the others, which Run
// reports as [event.Source] events; the rest runs. The only error is that another agent runs.
func Open(cfg Config, log *slog.Logger) (*Sources, error) {
	env := newEnvironment(cfg, log)
	s := &Sources{env: env}
	s.mounts = newMountSource(env)
	s.stalls = newDiskStallSource(env)
	s.gauges = newGaugeSource(env)
	env.fsError, env.fsWatched = s.mounts.Notify, s.mounts.Watched
	// Kernels before 5.11 charge programs and maps to RLIMIT_MEMLOCK. If raising it is not
	// permitted, loading reports that itself.
	s.memlock = rlimit.RemoveMemlock()
	if err := s.openStems(); err != nil {
		return nil, errors.Join(err, env.close())
	}
	if !slices.ContainsFunc(s.stems, func(s *stem) bool { return s.err == nil }) {
		if missing := missingCapabilities(env); len(missing) > 0 {
			log.Error("can't detect kernel faults: capabilities are missing", "missing", missing)
		}
		if env.fs.LockedDown() {
			log.Error("can't detect kernel faults: the kernel is locked down (lockdown=confidentiality forbids reading its memory)")
		}
		if s.memlock != nil {
			log.Warn("RLIMIT_MEMLOCK could not be raised; kernels before 5.11 need it", "error", s.memlock)
		}
	}
	if s.kernelErr != nil {
		log.Error("can't detect kernel faults", "error", s.kernelErr)
	}
	return s, nil
}

// missingCapabilities returns the capabilities that this process lacks to load and attach tracing
// programs. CAP_SYS_ADMIN replaces the first two.
func missingCapabilities(env *environment) []string {
	have, err := env.fs.EffectiveCaps()
	if err != nil || len(have.Missing("CAP_SYS_ADMIN")) == 0 {
		return nil
	}
	return have.Missing("CAP_BPF", "CAP_PERFMON", "CAP_SYS_RESOURCE", "CAP_NET_ADMIN", "CAP_SYS_PTRACE", "CAP_SYSLOG")
}

// Run collects until ctx is done, then returns nil. It calls settle when emitted events must be
// durable: before records are committed to the kernel, and after an event that can't be read again.
func (s *Sources) Run(ctx context.Context, emit Emit, settle func()) error {
	ring := emit
	emit = func(ev *event.Event) {
		ring(ev)
		settle()
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.mounts.Run(ctx, emit) })
	dir := &targetDir{path: s.env.cfg.TargetsDir, targets: s.env.targets, log: s.env.log}
	g.Go(func() error { return dir.run(ctx) })
	g.Go(func() error { return s.stalls.Run(ctx, emit) })
	g.Go(func() error { return s.gauges.Run(ctx, emit) })
	g.Go(func() error { return s.runStems(ctx, ring, settle) })
	return g.Wait()
}

// Reports returns the outcome of every program variant.
func (s *Sources) Reports() []bpf.VariantReport {
	var all []bpf.VariantReport
	for _, st := range s.stems {
		all = append(all, st.loaded.Reports()...)
	}
	return all
}

// AttachAll also attaches what is otherwise attached only when needed, so that Reports shows what
// this machine supports. Not for Sources that Run.
func (s *Sources) AttachAll() {
	for _, st := range s.stems {
		st.loaded.AttachAll()
	}
}

// Stem is a fault family of BPF programs.
type Stem struct {
	Name string
	Err  error // why it can't detect its faults; nil: it can
}

// Stems returns all stems, with the result of each at Open.
func (s *Sources) Stems() []Stem {
	var all []Stem
	for _, st := range s.stems {
		all = append(all, Stem{st.name, st.err})
	}
	return all
}

// NoPins returns why programs and rings do not outlast the agent; nil: they do, or need not.
func (s *Sources) NoPins() error { return s.noPins }

// NoMemlock returns the reason why the limit of locked memory could not be raised, or nil.
func (s *Sources) NoMemlock() error { return s.memlock }

// Err returns the reason why no program can be loaded, or nil.
func (s *Sources) Err() error { return s.kernelErr }

// SetTargets replaces the targets of one source, whose name is neither "configuration" nor a path;
// an empty list removes it. It may be called at any time; without programs the targets are only
// stored. They are watched within a second while Run runs. On an error nothing has changed.
func (s *Sources) SetTargets(source string, t []Target) error { return s.env.targets.Set(source, t) }

// Outcomes returns the outcomes of connections to the targets of a source, in the order given to
// SetTargets. It may be called from any goroutine. It fails if connections can't be seen on this
// machine, or if the outcomes can't be read.
func (s *Sources) Outcomes(source string) ([]TargetOutcome, error) {
	out, err := s.env.targets.outcomesOf(source, s.env.clock.Wall)
	if errors.Is(err, errNotCounted) && s.kernelErr != nil {
		err = fmt.Errorf("%w: %w", err, s.kernelErr)
	}
	return out, err
}

// Close releases everything. With detach, it also unpins everything; without, programs stay
// attached and fill their rings for the next run.
func (s *Sources) Close(detach bool) error {
	var errs []error
	for _, st := range s.stems {
		// At the end of the process, a reader may still hang in the kernel.
		if st.taken.CompareAndSwap(false, true) {
			errs = append(errs, st.loaded.Close())
		}
	}
	if s.pins != nil {
		if detach {
			errs = append(errs, s.pins.Remove())
		}
		errs = append(errs, s.pins.Close())
	}
	return errors.Join(append(errs, s.env.close())...)
}

// requests are requests to report lasting faults again, each with an Emit of its own. The zero
// value is ready; it is safe for concurrent use.
type requests struct {
	mu    sync.Mutex
	emits []Emit
}

func (r *requests) add(emit Emit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.emits = append(r.emits, emit)
}

// take returns the requests since the last call.
func (r *requests) take() []Emit {
	r.mu.Lock()
	defer r.mu.Unlock()
	emits := r.emits
	r.emits = nil
	return emits
}

// ReportLasting makes the sources report again, to emit, what they have reported and what still
// lasts: filesystems that refuse writes, stalled devices, hung tasks. They do so within seconds, while
// Run runs. They omit facts that they report repeatedly anyway, such as gauges and failed connections.
// ReportLasting does not block.
func (s *Sources) ReportLasting(emit Emit) {
	s.mounts.reportLasting(emit)
	s.stalls.asked.add(emit)
	for _, st := range s.stems {
		if st.decoder.reportLasting != nil {
			st.decoder.reportLasting(emit)
		}
	}
}

func skipsDesc() *prometheus.Desc {
	return prometheus.NewDesc("kernosis_program_skips_total",
		"Runs of a BPF program that the kernel skipped because it was already running on that CPU. Those that lose a record also count in kernosis_records_lost_total; others may lose details of a failure.",
		[]string{"stem", "program"}, nil)
}

// Describe implements prometheus.Collector.
func (s *Sources) Describe(ch chan<- *prometheus.Desc) { ch <- skipsDesc() }

// Collect implements prometheus.Collector.
func (s *Sources) Collect(ch chan<- prometheus.Metric) {
	desc := skipsDesc()
	for _, st := range s.stems {
		if st.err != nil {
			continue
		}
		skips, err := st.loaded.Skips()
		if err != nil {
			st.log.Debug("can't read skipped runs of programs", "error", err)
			continue
		}
		for _, of := range skips {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(of.Runs), st.name, of.Program)
		}
	}
}
