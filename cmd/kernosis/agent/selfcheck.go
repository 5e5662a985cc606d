package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/cmd/kernosis/diagnosis"
	"github.com/kernosis/kernosis/collector"
	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logsource"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/collector/probe/service"
	"github.com/kernosis/kernosis/collector/selfcheck"
	"github.com/kernosis/kernosis/detector/npd"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/metrics"
)

// selfCheckEvery is how often the checks are repeated. They take some milliseconds.
const selfCheckEvery = time.Minute

// selfCheck reports what the agent lacks: in the log, as a condition, in metrics and at
// /readyz.
type selfCheck struct {
	checker *selfcheck.Checker
	agent   *pipeline
	log     *slog.Logger

	mu    sync.Mutex
	lacks []selfcheck.Lack
}

// selfCheckConfig returns what to check, with the outcome of the start.
func selfCheckConfig(cfg Config, sources *collector.Sources) selfcheck.Config {
	c := selfcheck.Config{
		HostRoot: cfg.HostRoot, PinRoot: cfg.PinRoot, NoPins: sources.NoPins(), NoMemlock: sources.NoMemlock(),
		ReportSocket: cfg.ReportSocket, Sockets: true, Diagnose: cfg.Diagnose.On, ScriptUser: cfg.Diagnose.Scripts,
	}
	for _, s := range sources.Stems() {
		c.Stems = append(c.Stems, selfcheck.Stem{Name: s.Name, Err: s.Err})
	}
	for _, s := range cfg.services.list() {
		if s.Handler == service.CRI && s.Socket != "" {
			c.Runtime = append(c.Runtime, filepath.Dir(s.Socket))
		}
	}
	return c
}

// selfCheckLogs returns the logs that are read.
func selfCheckLogs(cfg Config, monitors *npd.Set) []selfcheck.Log {
	configs, _ := cfg.logs() // checked before
	if monitors != nil {
		configs = npdLogs(configs, monitors, cfg.HostRoot)
	}
	var out []selfcheck.Log
	for _, l := range configs {
		if l.Plugin == logsource.KMsg {
			l.Path = logsource.KMsgPath(cfg.HostRoot, l.Path)
		}
		out = append(out, selfcheck.Log{Name: l.Name, Plugin: l.Plugin, Path: l.Path})
	}
	return out
}

// FeatureLacks returns what an agent with default settings would lack.
func FeatureLacks(hostRoot string, sources *collector.Sources) []selfcheck.Lack {
	cfg := Config{HostRoot: hostRoot}
	c := selfCheckConfig(cfg, sources)
	c.Logs, c.Diagnose = selfCheckLogs(cfg, nil), true
	if err := bpf.CheckPinRoot(bpf.DefaultPinRoot); err != nil {
		c.PinRoot, c.NoPins = bpf.DefaultPinRoot, err
	}
	lacks := selfcheck.New(c).Look()
	if lacks == nil {
		lacks = []selfcheck.Lack{} // encode it as [] in JSON
	}
	return lacks
}

// run checks now, every minute, and when recheck receives, until ctx ends.
func (s *selfCheck) run(ctx context.Context) error {
	tick := time.NewTicker(selfCheckEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		s.look(first)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-s.agent.recheck:
		}
	}
}

// look checks once and reports changes. The first time it reports everything.
func (s *selfCheck) look(first bool) {
	now := s.checker.Look()
	s.mu.Lock()
	before := s.lacks
	s.lacks = now
	s.mu.Unlock()
	if !first && slices.Equal(before, now) {
		return
	}
	for _, l := range now {
		if !slices.Contains(before, l) {
			s.log.Warn("degraded", "part", l.Part, "reason", string(l.Reason), "lacks", l.Lacks, "not_seen", l.Unseen, "error", l.Why)
		}
	}
	for _, l := range before {
		if !slices.ContainsFunc(now, func(n selfcheck.Lack) bool { return n.Part == l.Part }) {
			s.log.Info("no longer degraded", "part", l.Part)
		}
	}
	parts := make([]metrics.Lack, len(now))
	for i, l := range now {
		parts[i] = metrics.Lack{Part: l.Part, Reason: string(l.Reason)}
	}
	s.agent.metrics.Degraded(parts)
	s.report(selfcheck.Result(now))
}

// report passes the outcome to the engine. A problem that continues keeps its message there, so if
// the message has changed, the problem is ended first.
func (s *selfCheck) report(d event.CheckData) {
	if d.Status == event.CheckProblem && slices.ContainsFunc(s.agent.conditions(), func(c problem.Condition) bool {
		return c.Type == "KernosisDegraded" && c.Status == problem.True && c.Message != d.Message
	}) {
		s.agent.observe(checkEvent(event.CheckData{Check: d.Check, Status: event.CheckOK}))
	}
	s.agent.observe(checkEvent(d))
}

// reportLasting emits the last outcome once more. The lock makes a concurrent look report after it.
func (s *selfCheck) reportLasting(emit func(*event.Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	emit(checkEvent(selfcheck.Result(s.lacks)))
}

func checkEvent(d event.CheckData) *event.Event {
	return &event.Event{
		Kind: event.Check, Source: "selfcheck", Time: time.Now(), BootTime: event.Duration(hostfs.BootTime()), CPU: event.NoCPU, Check: &d,
	}
}

// notes returns the lines that /readyz shows.
func (s *selfCheck) notes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]string, len(s.lacks))
	for i, l := range s.lacks {
		out[i] = fmt.Sprintf("degraded: %s: %s: lacks %s, not seen: %s", l.Part, l.Reason, l.Lacks, l.Unseen)
	}
	return out
}

// dropRights drops capabilities that the agent never needs. Configured programs keep them, because
// they may need any.
func (p *parts) dropRights() error {
	if !p.cfg.DropCaps {
		return nil
	}
	// Dropping needs a system call on each thread, and the Go runtime stops all threads until
	// each has made it: one that waits for the state disk would keep the agent from starting.
	if errors.Is(p.noState, bounded.ErrLate) {
		p.log.Warn("unneeded capabilities are kept until the next start", "error", p.noState)
		return nil
	}
	programs := len(p.monitors.Checks) > 0 || p.cfg.Diagnose.Scripts ||
		slices.ContainsFunc(p.cfg.services.list(), func(s service.Service) bool { return s.Handler == string(probe.Exec) })
	dropped, err := selfcheck.Drop(selfcheck.Needless(), !programs)
	switch {
	case errors.Is(err, selfcheck.ErrCgo), errors.Is(err, fs.ErrPermission):
		p.log.Debug("kept capabilities that are not needed", "reason", err)
	case err != nil:
		p.log.Warn("kept capabilities that are not needed", "error", err)
	default:
		p.log.Debug("dropped capabilities that are not needed", "capabilities", dropped, "of_programs_too", !programs)
	}
	return nil
}

// maxVolatileJournal bounds the journal, in MiB, in a temporary folder, which may be in memory.
const maxVolatileJournal = 8

// StateWithin is how long the state folder's disk may take at the start.
const StateWithin = 10 * time.Second

// openState makes sure that there is a state folder. If the configured folder can't be written, or
// its disk does not answer, the agent uses a temporary one, so that it still reports what it
// detects. The temporary folder starts with a copy of the configured one, if that can be read.
// lacking is why the configured one is not used; release must be called at the end.
func (c *Config) openState() (lacking error, release func() error, err error) { //nolint:revive // lacking is a fact, not the error of this
	release = func() error { return nil }
	// One call for each of the three folders, as all may be on one hanging disk.
	trials := bounded.Calls{Max: 3}
	dir := c.StateDir
	claimed, lacking := bounded.Do(&trials, StateWithin, func() (func() error, error) { return claim(dir) })
	if lacking == nil {
		return nil, claimed, nil
	}
	hangs := errors.Is(lacking, bounded.ErrLate)
	if !hangs && !selfcheck.Unwritable(lacking) {
		return nil, release, fmt.Errorf("state directory: %w", lacking)
	}
	errs := []error{fmt.Errorf("state directory: %w", lacking)}
	for _, parent := range []string{os.TempDir(), "/dev/shm"} {
		dir, err := bounded.Do(&trials, StateWithin, func() (string, error) { return os.MkdirTemp(parent, "kernosis-state-") })
		if err != nil {
			errs = append(errs, err)
			continue
		}
		journalMiB := min(c.JournalMiB, maxVolatileJournal)
		state := filepath.Join(dir, "new")
		if !hangs {
			c.Mutes = c.MutesPath() // mutes are only read, so from the configured folder
			saved, into := c.StateDir, filepath.Join(dir, "saved")
			// Everything or nothing, because the files depend on each other.
			if err := bounded.Err(&trials, StateWithin, func() error { return copyState(saved, into, journalMiB<<20) }); err != nil {
				lacking = errors.Join(lacking, err)
			} else {
				state = into
			}
		}
		if err := os.MkdirAll(state, 0o700); err != nil {
			errs = append(errs, err, os.RemoveAll(dir))
			continue
		}
		c.StateDir, c.JournalMiB = state, journalMiB
		return lacking, func() error { return os.RemoveAll(dir) }, nil
	}
	return nil, release, errors.Join(errs...)
}

// copyState copies a state folder: everything but the folder of Diagnoses, and only the newest
// journalBytes of the journal. A missing folder counts as empty.
func copyState(from, to string, journalBytes int64) error {
	err := os.MkdirAll(to, 0o700)
	if err != nil {
		return err
	}
	err = filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(from, path)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			return nil
		case err != nil || relErr != nil:
			return errors.Join(err, relErr)
		case name == diagnosis.Folder:
			return fs.SkipDir
		case name == JournalDir:
			if err := journal.Copy(path, filepath.Join(to, name), journalBytes); err != nil {
				return err
			}
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o700)
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), text, 0o600)
	})
	if err != nil {
		return fmt.Errorf("copy saved state: %w", err)
	}
	return nil
}

// claim makes sure that a folder can be written, and locks it against other agents until release. It
// locks last, because a folder that can't be written is not used and needs no lock.
func claim(dir string) (release func() error, err error) {
	if err := writable(dir); err != nil {
		return nil, err
	}
	lock, err := bpf.LockFolder(dir)
	switch {
	case errors.Is(err, bpf.ErrBusy):
		return nil, err
	case err != nil:
		return func() error { return nil }, nil //nolint:nilerr // its filesystem has no locks
	}
	return lock.Close, nil
}

// stateRoom is the space that has to be free, in bytes, because state files are replaced whole.
const stateRoom = 64 << 10

// writable creates a folder if it is missing, and a file in it. It syncs the file to wait for the
// disk: otherwise the page cache accepts the file even if the device hangs or fails.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".writable-")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, stateRoom))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}
