package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sync/errgroup"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
)

// Sources are all that an agent collects from on this machine.
type Sources struct {
	env       *environment
	stems     []*stem
	pins      *bpf.PinRoot // nil: nothing is pinned
	noPins    error        // why nothing is pinned that is to be
	kernelErr error        // why no program can be loaded
	memlock   error        // why the limit of locked memory could not be raised
	mounts    *mountSource
	stalls    *diskStallSource
	gauges    *gaugeSource
}

// Open attaches what this machine allows. What it does not allow is reported by
// name in the log, and as [event.Source] events when Run begins; the rest
// runs. The only error is that another agent runs.
func Open(cfg Config, log *slog.Logger) (*Sources, error) {
	env := newEnvironment(cfg, log)
	s := &Sources{env: env}
	s.mounts = newMountSource(env)
	s.stalls = newDiskStallSource(env)
	s.gauges = newGaugeSource(env)
	env.fsError = s.mounts.Notify
	// Kernels before 5.11 charge programs and maps to RLIMIT_MEMLOCK. Where
	// raising it is not permitted, loading says so itself.
	s.memlock = rlimit.RemoveMemlock()
	if err := s.openStems(); err != nil {
		return nil, err
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

// missingCapabilities names what this process would need to load and attach
// tracing programs. CAP_SYS_ADMIN stands for the first two.
func missingCapabilities(env *environment) []string {
	have, err := env.fs.EffectiveCaps()
	if err != nil || len(have.Missing("CAP_SYS_ADMIN")) == 0 {
		return nil
	}
	return have.Missing("CAP_BPF", "CAP_PERFMON", "CAP_SYS_RESOURCE", "CAP_NET_ADMIN", "CAP_SYS_PTRACE", "CAP_SYSLOG")
}

// Run collects until ctx ends and returns nil then. It calls settle whenever events that it
// has emitted are to be safe: before records of the kernel's are given back, and behind
// whatever can't be read again.
func (s *Sources) Run(ctx context.Context, emit Emit, settle func()) error {
	ring := emit
	emit = func(ev *event.Event) {
		ring(ev)
		settle()
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := s.mounts.Run(ctx, emit); err != nil {
			return fmt.Errorf("mounts: %w", err)
		}
		return nil
	})
	g.Go(func() error { return s.stalls.Run(ctx, emit) })
	g.Go(func() error { return s.gauges.Run(ctx, emit) })
	g.Go(func() error { return s.runStems(ctx, ring, settle) })
	return g.Wait()
}

// Reports returns what became of every program variant.
func (s *Sources) Reports() []bpf.VariantReport {
	var all []bpf.VariantReport
	for _, st := range s.stems {
		all = append(all, st.loaded.Reports()...)
	}
	return all
}

// AttachAll attaches also what is otherwise attached only while there is
// something to see, so that Reports reports what this machine could do. Not for
// Sources that Run.
func (s *Sources) AttachAll() {
	for _, st := range s.stems {
		st.loaded.AttachAll()
	}
}

// Stem is a fault family of kernel programs.
type Stem struct {
	Name string
	Err  error // why it can't see its faults; nil: it sees them
}

// Stems returns all, with what came of each at Open.
func (s *Sources) Stems() []Stem {
	var all []Stem
	for _, st := range s.stems {
		all = append(all, Stem{st.name, st.err})
	}
	return all
}

// NoPins says why programs and rings do not outlast the agent; nil: they do, or are not
// to.
func (s *Sources) NoPins() error { return s.noPins }

// NoMemlock says why the limit of locked memory could not be raised; nil: it could.
func (s *Sources) NoMemlock() error { return s.memlock }

// Err says why no program can be loaded; nil: programs can be.
func (s *Sources) Err() error { return s.kernelErr }

// SetTargets replaces the targets of one source, whose name is neither
// "configuration" nor a path; an empty list removes it. It may be called at any time,
// also where no program can be loaded: the targets are kept then. They are watched
// within a second while Run runs. With an error nothing has changed.
func (s *Sources) SetTargets(source string, t []Target) error { return s.env.targets.Set(source, t) }

// Outcomes returns how connections to the targets of a source went, in the order that
// SetTargets was given; it is for asking now and then, by any goroutine. The error says
// that they can't be seen on this machine, or can't be read.
func (s *Sources) Outcomes(source string) ([]TargetOutcome, error) {
	out, err := s.env.targets.outcomesOf(source, s.env.clock.Wall)
	if errors.Is(err, errNotCounted) && s.kernelErr != nil {
		err = fmt.Errorf("%w: %w", err, s.kernelErr)
	}
	return out, err
}

// Close releases everything. With detach, what is pinned goes too; without,
// programs stay attached and rings go on filling for the next run.
func (s *Sources) Close(detach bool) error {
	var errs []error
	for _, st := range s.stems {
		// A reader that hangs in the kernel when the process ends may still go on.
		if !st.reading.Load() {
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
