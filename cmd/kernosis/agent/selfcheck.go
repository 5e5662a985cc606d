package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kernosis/kernosis/bpf"
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
)

// selfCheckEvery is how often the checks are repeated. They take some milliseconds.
const selfCheckEvery = time.Minute

// selfCheck reports what the agent lacks: in the log, as a condition, in metrics and at /readyz.
type selfCheck struct {
	checker *selfcheck.Checker
	agent   *pipeline
	log     *slog.Logger

	mu    sync.Mutex
	lacks []selfcheck.Lack
}

// selfCheckConfig returns what to check, with the outcome of the start.
func selfCheckConfig(cfg Config, sources *collector.Sources, monitors *npd.Set) selfcheck.Config {
	c := selfcheck.Config{
		HostRoot: cfg.HostRoot, PinRoot: cfg.PinRoot, NoPins: sources.NoPins(), NoMemlock: sources.NoMemlock(),
		ReportSocket: cfg.ReportSocket, Sockets: true, Uses: cfg.uses(monitors),
	}
	for _, s := range sources.Stems() {
		c.Stems = append(c.Stems, selfcheck.Stem{Name: s.Name, Err: s.Err})
	}
	for _, s := range cfg.services.list() {
		if s.Handler == service.CRI && s.Socket != "" {
			c.Runtime = append(c.Runtime, filepath.Dir(s.Socket))
		}
	}
	configs, _ := cfg.logs() // checked before
	for _, l := range npdLogs(configs, monitors, cfg.HostRoot) {
		if l.Plugin == logsource.KMsg {
			l.Path = logsource.KMsgPath(cfg.HostRoot, l.Path)
		}
		c.Logs = append(c.Logs, selfcheck.Log{Name: l.Name, Plugin: l.Plugin, Path: l.Path})
	}
	return c
}

// FeatureLacks returns what an agent with default settings would lack.
func FeatureLacks(hostRoot string, sources *collector.Sources) []selfcheck.Lack {
	c := selfCheckConfig(Config{HostRoot: hostRoot, Diagnose: diagnoseSettings{On: true}}, sources, &npd.Set{})
	if err := bpf.CheckPinRoot(bpf.DefaultPinRoot); err != nil {
		c.PinRoot, c.NoPins = bpf.DefaultPinRoot, err
	}
	return append([]selfcheck.Lack{}, selfcheck.New(c).Look()...) // encode none as [] in JSON
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
	s.agent.metrics.Degraded(now)
	s.report(selfcheck.Result(now))
}

// report passes the outcome to the engine. In the engine a continuing problem keeps its message. So
// if the message has changed, report ends the problem first, even while it is muted.
func (s *selfCheck) report(d event.CheckData) {
	if d.Status == event.CheckProblem && slices.ContainsFunc(s.agent.problemsNow(), func(p problem.Problem) bool {
		return p.Condition == "KernosisDegraded" && p.State == problem.Firing && p.Message != d.Message
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
	return hostfs.Stamped(event.Event{Kind: event.Check, Source: "selfcheck", Check: &d})
}

func (s *selfCheck) notes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]string, len(s.lacks))
	for i, l := range s.lacks {
		out[i] = fmt.Sprintf("degraded: %s: %s: lacks %s, not seen: %s", l.Part, l.Reason, l.Lacks, l.Unseen)
	}
	return out
}

// uses returns what the settings make the agent do that needs capabilities.
func (c *Config) uses(monitors *npd.Set) selfcheck.Uses {
	configured, _ := c.logs() // checked before
	journal := func(l logsource.Config) bool { return l.Plugin == logsource.Journald }
	exec := func(s service.Service) bool { return s.Handler == string(probe.Exec) }
	return selfcheck.Uses{
		Diagnose: c.Diagnose.On, Scripts: c.Diagnose.On && c.Diagnose.Scripts,
		Programs: len(monitors.Checks) > 0 || slices.ContainsFunc(c.services.list(), exec),
		Journal:  !hostfs.New(c.HostRoot).IsRoot() && slices.ContainsFunc(npdLogs(configured, monitors, c.HostRoot), journal),
	}
}

// dropRights drops capabilities that the agent does not need. Check programs and exec services keep
// them, because they may need any.
func (p *parts) dropRights() error {
	if !p.cfg.DropCaps {
		return nil
	}
	// Dropping needs a system call on each thread, and the Go runtime stops all threads until
	// each has made it: one that waits for the state disk would keep the agent from starting. A second
	// time, when programs are attached, any log's disk could do that.
	if errors.Is(p.noState, bounded.ErrLate) {
		p.log.Warn("unneeded capabilities are kept until the next start", "error", p.noState)
		return nil
	}
	uses := p.cfg.uses(p.monitors)
	if uses.Programs && selfcheck.NoNewPrivileges() {
		p.log.Debug("kept capabilities that are not needed", "reason", "with no_new_privs, programs have only those of the agent")
		return nil
	}
	dropped, err := selfcheck.Drop(selfcheck.Unneeded(uses), !uses.Programs)
	switch {
	case errors.Is(err, selfcheck.ErrCgo):
		p.log.Debug("kept capabilities that are not needed", "reason", err)
	case err != nil:
		p.log.Warn("kept capabilities that are not needed", "error", err)
	default:
		p.log.Debug("dropped capabilities that are not needed", "capabilities", dropped, "of_programs_too", !uses.Programs)
	}
	return nil
}
