package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// environment is what the sources share: safe for concurrent use, and unchanged after the start.
type environment struct {
	cfg        Config
	log        *slog.Logger
	fs         hostfs.FS
	clock      *hostfs.Clock
	attributor *hostfs.Attributor
	finder     *hostfs.CgroupFinder // nil where cgroups can't be found by id
	symbols    *hostfs.Symbols
	devices    *hostfs.Devices
	targets    *Targets
	outcomes   *bpf.SockOutcomes // of the targets; nil where they are not watched
	// kernel is nil where it has no BTF.
	kernel *bpf.Kernel
	// oomCode returns the result of a pass over kallsyms, which begins when the agent starts.
	oomCode func() oomCode
	// fsError is called with the device and the time since boot of each filesystem error. ends says that the
	// filesystem accepts no writes from then on, whatever its mount options are.
	fsError func(dev uint32, at time.Duration, ends bool)
	// fsWatched is called with the types of filesystems for which fsError is called from then on.
	fsWatched func(types []string)
}

// attributed is how many cgroups are cached: a node has hundreds of short-lived containers.
const attributed = 4096

func newEnvironment(cfg Config, log *slog.Logger) *environment {
	env := &environment{
		cfg: cfg, log: log, fs: hostfs.New(cfg.HostRoot),
		fsError: func(uint32, time.Duration, bool) {}, fsWatched: func([]string) {},
	}
	env.clock = hostfs.NewClock()
	env.symbols = hostfs.NewSymbols(env.fs)
	env.devices = hostfs.NewDevices(env.fs)
	awaited := slices.Clone(cfg.TargetSources)
	if cfg.TargetsDir != "" {
		awaited = append(awaited, cfg.TargetsDir)
	}
	env.targets = newTargets(awaited...)
	if err := env.targets.Set("configuration", cfg.Targets); err != nil {
		log.Error("targets refused", "error", err)
	}
	find := func(uint64) (string, error) { return "", errors.ErrUnsupported }
	finder, err := env.fs.OpenCgroupFinder()
	if err != nil {
		// Chains longer than what a program captures stay truncated.
		log.Debug("can't find control groups by id", "error", err)
	} else {
		env.finder, find = finder, finder.Find
	}
	env.attributor = hostfs.NewAttributor(attributed, find, env.name)
	if layout, err := env.fs.CgroupLayout(); err == nil {
		// Disk errors that were only counted have the id of the cgroup, but no name.
		_, v1 := layout.Controllers["blkio"]
		env.attributor.ByID = !v1
	}
	env.oomCode = sync.OnceValue(func() oomCode {
		code, err := findOOMCode(env.fs)
		if err != nil {
			log.Warn("code of OOM kills not found: a victim that was already dying may count as killed, and only the limits distinguish memcg from global", "error", err)
		}
		return code
	})
	go env.oomCode()
	return env
}

// name adds the names of a container and its pod.
func (env *environment) name(c *event.Container) {
	env.fs.NameContainer(c)
	if c.PodName == "" && c.PodUID != "" && env.cfg.NamePod != nil {
		env.cfg.NamePod(c)
	}
}

func (env *environment) close() error {
	var errs []error
	env.targets.count(nil)
	if env.outcomes != nil {
		errs = append(errs, env.outcomes.Close())
	}
	if env.finder != nil {
		errs = append(errs, env.finder.Close())
	}
	return errors.Join(errs...)
}

// onBeats calls look at once and then periodically, in step with all other checks (see
// [hostfs.UntilBeat]), until ctx is done. It returns nil.
func onBeats(ctx context.Context, every time.Duration, look func()) error {
	for {
		look()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(hostfs.UntilBeat(every)):
		}
	}
}

// sourceEvent reports that a source is up, or down and why.
func sourceEvent(stem string, err error) *event.Event {
	d := event.SourceData{Stem: stem, Up: err == nil}
	if err != nil {
		d.Reason = display.Safe(fmt.Sprint(err), 500)
	}
	return hostfs.Stamped(event.Event{Kind: event.Source, Source: "collector", SourceUp: &d})
}

// lostEvent reports that a source lost n records; 0: an unknown number.
func lostEvent(stem, reason string, n uint64) *event.Event {
	return hostfs.Stamped(event.Event{
		Kind: event.Lost, Source: "collector", Lost: &event.LostData{Stem: stem, Count: n, Reason: reason},
	})
}
