package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing/fstest"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kernosis/kernosis/collector"
	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/rules"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/metrics"
	"github.com/kernosis/kernosis/reporter/web"
)

func newRun() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Detect faults on this machine; no cluster needed",
		Long: `Detect faults on this machine and print each with its subject, its cause and
the rule that told it. Needs root; without it, or on a kernel that lacks
something, run says what is missing and runs what can run.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return run(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	runFlags(cmd.Flags())
	return cmd
}

func parseLevel(s string) (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(s)); err != nil {
		return l, fmt.Errorf("%q is none of debug, info, warn, error", s)
	}
	return l, nil
}

// loadRules returns the shipped rules with the operator's over them.
func loadRules(dir string) (*detector.RuleSet, error) { return loadLayers(dir, rules.FS) }

// loadLayers returns rules with the operator's over them.
func loadLayers(dir string, layers ...fs.FS) (*detector.RuleSet, error) {
	if dir == "" {
		return detector.Load(layers...)
	}
	return detector.LoadDir(dir, layers...)
}

// shippedRules returns the files of shipped rules whose names, without .yaml, match
// one of the patterns.
func shippedRules(patterns []string) (fs.FS, error) {
	names, err := fs.Glob(rules.FS, "*.yaml")
	if err != nil {
		return nil, err
	}
	chosen := fstest.MapFS{} // a map as a file system; it has nothing of a test
	for _, pattern := range patterns {
		found := false
		for _, name := range names {
			ok, err := path.Match(pattern, strings.TrimSuffix(name, ".yaml"))
			if err != nil {
				return nil, fmt.Errorf("shipped-rules: %q: %w", pattern, err)
			}
			if !ok {
				continue
			}
			found = true
			text, err := fs.ReadFile(rules.FS, name)
			if err != nil {
				return nil, err
			}
			chosen[name] = &fstest.MapFile{Data: text, Mode: 0o444}
		}
		if !found {
			return nil, fmt.Errorf("shipped-rules: no file of rules matches %q", pattern)
		}
	}
	return chosen, nil
}

func run(ctx context.Context, cfg config, stdout, stderr io.Writer) (err error) {
	level, err := parseLevel(cfg.LogLevel)
	if err != nil {
		return err
	}
	stdout, stderr = &patient{w: stdout}, &patient{w: stderr}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	cfg.tellWarnings(log)
	collectGarbage(startPercent)

	stateDir := cfg.StateDir
	noState, removeState, err := cfg.openState()
	if err != nil {
		return failed(err)
	}
	defer func() { err = errors.Join(err, failed(removeState())) }()
	// Before the restore: what was known of a service's condition goes on.
	cfg.rememberServices(log)
	changed := changes(cfg.RulesDir)
	ruleSet, monitors, err := cfg.npd.rules(cfg)
	if err != nil && cfg.forgetServices() {
		ruleSet, monitors, err = cfg.npd.rules(cfg)
	}
	if err != nil {
		return err
	}
	tellWarnings(monitors, log)
	dropRights(cfg, monitors, noState, log)
	store, err := journal.Open(filepath.Join(cfg.StateDir, journalDir), journal.Options{MaxBytes: cfg.JournalMiB << 20})
	if err != nil {
		return failed(err)
	}
	defer func() { err = errors.Join(err, failed(store.Close())) }()

	m := metrics.New(version, cfg.kube.nodeLabel())
	m.Journal(store.Stats)
	m.Lookups(netlook.Stats)
	a := &agent{
		stateDir: cfg.StateDir, log: log, metrics: m, journal: store,
		out:    console.NewText(stdout),
		engine: detector.NewEngine(ruleSet),
		wake:   make(chan struct{}, 1), recheck: make(chan struct{}, 1),
	}
	if cfg.Output == "json" {
		a.out = console.NewJSON(stdout)
	}
	seen, err := newProbes(cfg, a, log)
	if err != nil {
		return failed(err)
	}
	known, err := openPods(cfg, a, seen, log)
	if err != nil {
		return failed(err)
	}
	causes, err := openDiagnoses(cfg, a, known, log)
	if err != nil {
		return err
	}
	defer causes.close()
	if causes != nil {
		a.causes = causes.worker
	}
	if known != nil {
		a.pods = known
	}
	a.warnOfLabels(ruleSet)
	if err := a.restore(); err != nil {
		return failed(err)
	}
	// Behind the restore: what that journals again was told by the last run.
	if a.cluster, err = openCluster(cfg, a, known, causes, log); err != nil {
		return failed(err)
	}
	a.tellConditions()
	mutes := newMuteFile(cfg.mutesPath(), a, ruleSet)
	mutes.read()

	watched := cfg.collector(seen.targetSources())
	watched.NamePod = a.namePod
	sources, err := collector.Open(watched, log)
	if err != nil {
		return failed(err)
	}
	defer func() { err = errors.Join(err, failed(sources.Close(!cfg.keepsAttached(log)))) }()
	a.canary = sources.CanarySeen
	m.Skips(programSkips(sources))
	tellReports(log, sources)
	if err := seen.open(sources); err != nil {
		return failed(err)
	}

	logs, err := openLogs(cfg, monitors, ruleSet, log)
	if err != nil {
		return failed(err)
	}
	a.patterns = logs.SetPatterns
	m.Logs(logStats(logs))
	checks, err := newChecks(monitors, m, log, a.observe)
	if err != nil {
		return err
	}
	stats, err := newStats(monitors, m, log, cfg.npd)
	if err != nil {
		return err
	}
	reports, err := openReports(cfg, a, m, log)
	if err != nil {
		return failed(err)
	}
	defer func() { err = errors.Join(err, failed(reports.Close())) }()
	lacks := selfCheckConfig(cfg, sources)
	lacks.StateHangs = a.diskHangs
	if known != nil {
		lacks.Pods = known.failure
	}
	lacks.Logs, lacks.StateDir, lacks.NoState, lacks.NoReports = selfCheckLogs(cfg, monitors), stateDir, noState, reports.lacking
	self := newSelfCheck(lacks, a, log)
	probes, err := openServices(cfg, a, m, mutes, log)
	if err != nil {
		return failed(err)
	}
	defer probes.close()

	var started atomic.Bool
	check := func() error { return errors.Join(sources.Check(time.Now()), a.check()) }
	a.cluster.health(check, self.notes)
	ready := func() error {
		if !started.Load() {
			return errors.New("sources are not attached yet")
		}
		return check()
	}

	g, ctx := errgroup.WithContext(ctx)
	access, err := cfg.access(m, log)
	if err != nil {
		return failed(err)
	}
	figures := func(a *web.Access) http.Handler { return web.Handler(m.Registry, check, ready, self.notes, a) }
	if err := serve(ctx, g, log, cfg.Listen, "/metrics", access, figures); err != nil {
		return failed(err)
	}
	if cfg.npd != nil {
		if a.problems, err = metrics.NewProblems(m.Registry, problemKinds(ruleSet)); err != nil {
			return failed(err)
		}
		a.tellConditions()
		if err := serve(ctx, g, log, cfg.npd.metrics, "/metrics", access, figures); err != nil {
			return failed(err)
		}
		status := func(to *web.Access) http.Handler { return web.StatusHandler(check, a.conditions, to) }
		if err := serve(ctx, g, log, cfg.npd.status, "/conditions", access, status); err != nil {
			return failed(err)
		}
	}
	if cfg.RulesDir != "" {
		g.Go(func() error { return watchRules(ctx, a, cfg, log, mutes, changed) })
	}
	startNPD(ctx, g, checks, stats, log)
	reports.start(ctx, g, a.observe)
	probes.start(ctx, g)
	known.start(ctx, g)
	a.cluster.start(ctx, g)
	causes.start(ctx, g)
	g.Go(func() error { return smallFootprint(ctx, log) })
	g.Go(func() error { return mutes.watch(ctx) })
	g.Go(func() error { return a.run(ctx) })
	seen.start(ctx, g)
	g.Go(func() error {
		a.awaitPods(ctx, ruleSet)
		return sources.Run(ctx, seen.emit(a.observe))
	})
	g.Go(func() error { return logs.Run(ctx, a.observe) })
	g.Go(func() error { return self.run(ctx) })
	started.Store(true)
	return failed(wait(ctx, g))
}

// endWithin is how long the parts have to end. Beyond that what hangs in the kernel is left
// to it: 30 s after SIGTERM kubelet kills, and programs are to be detached before.
const endWithin = 15 * time.Second

// wait waits until the parts have ended, and after the end of ctx no longer than they have.
func wait(ctx context.Context, g *errgroup.Group) error {
	ended := make(chan error, 1)
	go func() { ended <- g.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(endWithin)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return fmt.Errorf("ended without parts that have not ended for %s: does the state disk hang?", endWithin)
	}
}

// patient is a writer whose reader may hang: a container's output ends on a disk. It gives a
// write a second. What has no answer then is written when the reader goes on, and what comes
// before that is dropped, with an error.
type patient struct {
	w     io.Writer
	calls bounded.Calls
}

func (p *patient) Write(b []byte) (int, error) {
	b = bytes.Clone(b)
	return bounded.Do(&p.calls, time.Second, func() (int, error) { return p.w.Write(b) })
}

// watchRules puts changed rule files in force. Bad ones are told and the
// running rules stay.
func watchRules(ctx context.Context, a *agent, cfg config, log *slog.Logger, mutes *muteFile, changed func() bool) error {
	dir := cfg.RulesDir
	return detector.Watch(ctx, dir, func() {
		if !changed() {
			return
		}
		if err := reloadRules(a, cfg, mutes); err != nil {
			log.Error("rules not reloaded, the running ones stay", "error", err)
			return
		}
		log.Info("rules reloaded", "dir", dir)
	})
}

// changes returns what tells whether the rules of a directory are others than at the last
// call, and at the first one than now.
func changes(dir string) func() bool {
	last, lastErr := detector.Contents(dir)
	return func() bool {
		now, err := detector.Contents(dir)
		same := now == last && err == nil && lastErr == nil
		last, lastErr = now, err
		return !same
	}
}

// reloadRules puts the rules in force as they are now.
func reloadRules(a *agent, cfg config, mutes *muteFile) error {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	next, _, err := cfg.npd.rules(cfg)
	if err != nil {
		return err
	}
	if a.problems != nil {
		a.problems.Known(problemKinds(next))
	}
	a.replace(next)
	a.warnOfLabels(next)
	mutes.replaced(next)
	return nil
}

// tellReports logs what this machine can't do, once, at start.
func tellReports(log *slog.Logger, sources *collector.Sources) {
	attached := 0
	for _, r := range sources.Reports() {
		switch r.State {
		case "attached", "adopted":
			attached++
		case "absent", "forbidden", "failed":
			log.Debug("program not attached", "stem", r.Stem, "program", r.Program, "state", r.State, "reason", r.Reason)
		}
	}
	log.Info("watching", "programs", attached)
}

// programSkips is for the metrics.
func programSkips(sources *collector.Sources) func() []metrics.ProgramSkips {
	return func() []metrics.ProgramSkips {
		skips := sources.Skips()
		out := make([]metrics.ProgramSkips, len(skips))
		for i, s := range skips {
			out[i] = metrics.ProgramSkips{Stem: s.Stem, Program: s.Program, Runs: s.Runs}
		}
		return out
	}
}
