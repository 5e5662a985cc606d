package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kernosis/kernosis/collector"
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
		return l, fmt.Errorf("log-level: %q is none of debug, info, warn, error", s)
	}
	return l, nil
}

// loadRules returns the shipped rules with the operator's over them.
func loadRules(dir string) (*detector.RuleSet, error) {
	if dir == "" {
		return detector.Load(rules.FS)
	}
	return detector.LoadDir(dir, rules.FS)
}

func run(ctx context.Context, cfg config, stdout, stderr io.Writer) (err error) {
	level, err := parseLevel(cfg.LogLevel)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))

	ruleSet, err := loadRules(cfg.RulesDir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return failed(fmt.Errorf("state directory: %w", err))
	}
	store, err := journal.Open(filepath.Join(cfg.StateDir, journalDir), journal.Options{MaxBytes: cfg.JournalMiB << 20})
	if err != nil {
		return failed(err)
	}
	defer func() { err = errors.Join(err, failed(store.Close())) }()

	m := metrics.New(version)
	m.Journal(store.Stats)
	a := &agent{
		stateDir: cfg.StateDir, log: log, metrics: m, journal: store,
		out:    console.NewText(stdout),
		engine: detector.NewEngine(ruleSet),
		wake:   make(chan struct{}, 1),
	}
	if cfg.Output == "json" {
		a.out = console.NewJSON(stdout)
	}
	if err := a.restore(); err != nil {
		return failed(err)
	}
	mutes := newMuteFile(cfg.mutesPath(), a, ruleSet)
	mutes.read()

	sources, err := collector.Open(cfg.collector(), log)
	if err != nil {
		return failed(err)
	}
	defer func() { err = errors.Join(err, failed(sources.Close(!cfg.KeepAttached))) }()
	a.canary = sources.CanarySeen
	tellReports(log, sources)

	logs, err := openLogs(cfg, ruleSet, log)
	if err != nil {
		return failed(err)
	}
	a.patterns = logs.SetPatterns
	m.Logs(logStats(logs))

	var started atomic.Bool
	check := func() error { return sources.Check(time.Now()) }
	ready := func() error {
		if !started.Load() {
			return errors.New("sources are not attached yet")
		}
		return check()
	}

	g, ctx := errgroup.WithContext(ctx)
	if cfg.Listen != "" {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
		if err != nil {
			return failed(fmt.Errorf("listen: %w", err))
		}
		log.Info("serving", "url", "http://"+l.Addr().String()+"/metrics")
		g.Go(func() error { return web.Serve(ctx, l, web.Handler(m.Registry, check, ready)) })
	}
	if cfg.RulesDir != "" {
		g.Go(func() error { return watchRules(ctx, a, cfg.RulesDir, log, mutes) })
	}
	g.Go(func() error { return mutes.watch(ctx) })
	g.Go(func() error { return a.run(ctx) })
	g.Go(func() error { return sources.Run(ctx, a.observe) })
	g.Go(func() error { return logs.Run(ctx, a.observe) })
	started.Store(true)
	return failed(g.Wait())
}

// watchRules puts changed rule files in force. Bad ones are told and the
// running rules stay.
func watchRules(ctx context.Context, a *agent, dir string, log *slog.Logger, mutes *muteFile) error {
	return detector.Watch(ctx, dir, func() {
		next, err := loadRules(dir)
		if err != nil {
			log.Error("rules not reloaded, the running ones stay", "error", err)
			return
		}
		a.replace(next)
		mutes.replaced(next)
		log.Info("rules reloaded", "dir", dir)
	})
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
