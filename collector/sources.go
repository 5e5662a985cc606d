package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sync/errgroup"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
)

// Sources are all that an agent collects from on this machine.
type Sources struct {
	kernel    *kernelSource // nil where no program can be loaded
	kernelErr error
	mounts    *mountSource
	stalls    *diskStallSource
	env       *environment
}

// Open attaches what this machine allows. What it does not allow is told by
// name in the log, and as [event.Source] events when Run begins; the rest
// runs. The only error is that another agent runs.
func Open(cfg Config, log *slog.Logger) (*Sources, error) {
	env := newEnvironment(cfg, log)
	s := &Sources{env: env}
	s.mounts = newMountSource(env)
	s.stalls = newDiskStallSource(env)
	env.fsError = s.mounts.Notify
	// Kernels before 5.11 charge programs and maps to RLIMIT_MEMLOCK. Where
	// raising it is not permitted, loading says so itself.
	memlockErr := rlimit.RemoveMemlock()
	s.kernel, s.kernelErr = openKernel(env)
	if errors.Is(s.kernelErr, bpf.ErrPinRootBusy) {
		return nil, s.kernelErr
	}
	if s.kernelErr != nil || s.kernel.blind() {
		if missing := missingCapabilities(env); len(missing) > 0 {
			log.Error("kernel faults can't be seen: capabilities are missing", "missing", missing)
		}
		if env.fs.LockedDown() {
			log.Error("kernel faults can't be seen: the kernel is locked down (lockdown=confidentiality forbids reading its memory)")
		}
		if memlockErr != nil {
			log.Warn("RLIMIT_MEMLOCK could not be raised; kernels before 5.11 need it", "error", memlockErr)
		}
	}
	if s.kernelErr != nil {
		log.Error("kernel faults can't be seen", "error", s.kernelErr)
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

// Run collects until ctx ends and returns nil then.
func (s *Sources) Run(ctx context.Context, emit Emit) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := s.mounts.Run(ctx, emit); err != nil {
			return fmt.Errorf("mounts: %w", err)
		}
		return nil
	})
	g.Go(func() error { return s.stalls.Run(ctx, emit) })
	if s.kernel != nil {
		g.Go(func() error { return s.kernel.run(ctx, emit) })
	} else {
		for _, b := range bpf.Stems() {
			emit(s.env.sourceEvent(b.Name, s.kernelErr))
		}
	}
	return g.Wait()
}

// Reports returns what became of every program variant.
func (s *Sources) Reports() []bpf.VariantReport {
	if s.kernel == nil {
		return nil
	}
	return s.kernel.reports()
}

// AttachAll attaches also what is otherwise attached only while there is
// something to see, so that Reports tells what this machine could do. Not for
// Sources that Run.
func (s *Sources) AttachAll() {
	if s.kernel != nil {
		for _, st := range s.kernel.stems {
			st.loaded.AttachAll()
		}
	}
}

// Err says why no program can be loaded; nil: programs can be.
func (s *Sources) Err() error { return s.kernelErr }

// CanarySeen notes that a canary has passed the engine.
func (s *Sources) CanarySeen(c *event.CanaryData) {
	if s.kernel != nil {
		s.kernel.canarySeen(c)
	}
}

// Check says what keeps the agent from seeing faults that this machine lets it
// see.
func (s *Sources) Check(now time.Time) error {
	if s.kernel == nil {
		return s.kernelErr
	}
	return s.kernel.check(now)
}

// Close releases everything. With detach, what is pinned goes too; without,
// programs stay attached and rings go on filling for the next run.
func (s *Sources) Close(detach bool) error {
	var err error
	if s.kernel != nil {
		err = s.kernel.close(detach)
	}
	return errors.Join(err, s.env.close())
}
