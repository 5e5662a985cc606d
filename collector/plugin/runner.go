package plugin

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/process"
)

// Runner runs the checks of a set. Create one with New.
type Runner struct {
	cfg    Config
	log    *slog.Logger
	slots  chan struct{}    // taken by each running check
	groups []*process.Group // of each check; nil: no control groups

	mu     sync.Mutex // serializes calls of handle
	handle func(Result)
	last   map[string]Result // the latest result of each check, by name
}

// New returns a Runner that has not started anything yet, or all mistakes in cfg, including
// programs that are missing or not executable. handle is called with each result, one at a time,
// from goroutines of Run; checks wait while it runs. log may be nil.
func New(cfg Config, log *slog.Logger, handle func(Result)) (*Runner, error) {
	cfg, err := cfg.normal()
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Runner{
		cfg: cfg, log: log.With("checks", cfg.Name), handle: handle,
		slots: make(chan struct{}, cfg.Concurrency), last: make(map[string]Result),
	}, nil
}

// Run runs each check at its interval until ctx ends, and then returns nil; running checks are
// killed and have no result. Call it at most once.
func (r *Runner) Run(ctx context.Context) error {
	if r.cfg.Cgroup != "" {
		dir := groupDir(r.cfg.Cgroup, r.cfg.Name)
		groups, all, err := openGroups(dir, len(r.cfg.Checks), r.cfg.MaxProcesses, r.log)
		if err != nil {
			r.log.Warn("checks run without a control group", "error", err)
		} else {
			r.groups = all
			defer groups.Close()
		}
	}
	var all sync.WaitGroup
	for i := range r.cfg.Checks {
		all.Go(func() { r.follow(ctx, i) })
	}
	all.Wait()
	return nil
}

// groupPrefix is the prefix of the control groups created here.
const groupPrefix = "kernosis-check-"

// groupDir returns the directory of a set's control groups.
func groupDir(parent, set string) string {
	name := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r == '-' {
			return r
		}
		return '_'
	}, set)
	return filepath.Join(parent, groupPrefix+name[:min(len(name), 100)])
}

// openGroups creates a control group for each of n checks.
func openGroups(dir string, n, maximum int, log *slog.Logger) (*process.Groups, []*process.Group, error) {
	groups, err := process.OpenGroups(dir, process.Limits{Processes: maximum}, log)
	if err != nil {
		return nil, nil, err
	}
	all := make([]*process.Group, 0, n)
	for i := range n {
		g, err := groups.Make(strconv.Itoa(i))
		if err != nil {
			groups.Close()
			return nil, nil, err
		}
		all = append(all, g)
	}
	return groups, all, nil
}

// follow runs one check at its interval.
func (r *Runner) follow(ctx context.Context, i int) {
	s := &schedule{r: r, check: &r.cfg.Checks[i]}
	if r.groups != nil {
		s.group = r.groups[i]
	}
	next := time.Now().Add(r.first(i))
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if !s.once(ctx) {
			return
		}
		next = following(next, s.check.InvokeInterval, time.Now())
		timer.Reset(time.Until(next))
	}
}

// first returns the delay before the first run of check i: a random time within the check's part of the
// spread. So nodes that start together don't call a common service at the same time.
func (r *Runner) first(i int) time.Duration {
	n := time.Duration(len(r.cfg.Checks))
	part := min(r.cfg.Spread, r.cfg.Checks[i].InvokeInterval) / n
	return time.Duration(i)*part + rand.N(part+1)
}

// following returns the next time after now that is a whole number of intervals after last, so
// that checks keep their distance. It skips times that a long run has missed.
func following(last time.Time, interval time.Duration, now time.Time) time.Time {
	passed := max(0, now.Sub(last))
	return last.Add(passed - passed%interval + interval)
}

// schedule is the state of one check.
type schedule struct {
	r     *Runner
	check *Check
	group *process.Group

	runs   process.Runs
	status Status // the last one
}

// once runs the check once, and returns false when ctx has ended.
func (s *schedule) once(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case s.r.slots <- struct{}{}:
	}
	o := s.runs.Run(ctx, &process.Program{
		Path: s.check.Path, Args: s.check.Args, Timeout: s.check.Timeout, Group: s.group, Env: append(os.Environ(), s.r.cfg.Env...),
	})
	<-s.r.slots
	if ctx.Err() != nil {
		return false // the result is not the program's
	}
	s.deliver(s.check.result(&o, s.r.cfg.MaxOutputLength))
	return true
}

// deliver passes the result to handle, and logs it if the status has changed.
func (s *schedule) deliver(res Result) {
	if res.Status != s.status {
		s.status = res.Status
		level := slog.LevelInfo
		if res.Status == Unknown {
			level = slog.LevelWarn
		}
		s.r.log.Log(context.Background(), level, "check has a new status", "check", res.Check, "status", res.Status,
			"message", res.Message, "error", res.Err, "stderr", res.Stderr)
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.last[res.Check] = res
	s.r.handle(res)
}

// ReportLasting calls f with the latest result of each check that has run. No check is handled meanwhile.
func (r *Runner) ReportLasting(f func(Result)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.cfg.Checks {
		if res, ok := r.last[c.Name]; ok {
			f(res)
		}
	}
}
