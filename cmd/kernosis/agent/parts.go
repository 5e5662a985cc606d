package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector"
	"github.com/kernosis/kernosis/collector/ingest"
	"github.com/kernosis/kernosis/collector/logsource"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/collector/plugin"
	"github.com/kernosis/kernosis/collector/selfcheck"
	"github.com/kernosis/kernosis/collector/systemstats"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/npd"
	"github.com/kernosis/kernosis/diagnose/worker/kube"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/metrics"
	"github.com/kernosis/kernosis/reporter/web"
)

type parts struct {
	version  string
	cfg      Config // parts fills in the state folder and remembered services
	log      *slog.Logger
	stdout   io.Writer
	stateDir string // as configured; cfg.StateDir may differ
	noState  error  // why stateDir can't be used; nil: it is used

	changed   func() bool // reports whether the rule files have changed
	rules     *detector.RuleSet
	monitors  *npd.Set
	journal   *journal.Journal
	metrics   *metrics.Metrics
	agent     *pipeline
	probes    *probes
	pods      *podSource
	diagnoses *kube.Store // in the API server; nil without a cluster
	mutes     *muteFile
	sources   *collector.Sources
	logs      *logsource.Sources
	checks    []*plugin.Runner
	stats     []*systemstats.Collector
	intake    *ingest.Intake // receives reports of problem daemons; nil if none is configured
	reports   *ingest.Server // nil if daemons can't report
	noReports error          // why reports is nil
	self      *selfCheck
	services  *serviceProbes

	started atomic.Bool // whether sources are attached
	closers []func() error
}

// open opens the parts, each after those it depends on. They are closed in reverse order.
func (p *parts) open() error {
	for _, open := range []func() error{
		p.openState,
		p.openRules, // includes rules of services that an earlier run found
		p.dropRights,
		p.openJournal, p.openEngine, p.openProbes, p.openPods, p.openDiagnoses,
		p.restore,
		p.openCluster, // after restore: the last run has already reported the entries that it journals again
		p.openMutes, p.openKernel, p.openLogs, p.openChecks, p.openStats, p.openReports, p.openSelfCheck, p.openServices,
	} {
		if err := open(); err != nil {
			return err
		}
	}
	return nil
}

// onClose adds a function to call when the agent ends, in reverse order of adding.
func (p *parts) onClose(f func() error) { p.closers = append(p.closers, f) }

func (p *parts) close() error {
	var errs []error
	for _, f := range slices.Backward(p.closers) {
		errs = append(errs, output.Failed(f()))
	}
	return errors.Join(errs...)
}

func (p *parts) openRules() (err error) {
	p.changed = changes(p.cfg.RulesDir)
	p.rules, p.monitors, err = p.cfg.rulesNow()
	if err != nil {
		return err
	}
	for _, w := range p.monitors.Warnings {
		p.log.Warn("configuration of node-problem-detector", "warning", w.Error())
	}
	return nil
}

func (p *parts) openJournal() (err error) {
	p.journal, err = journal.Open(filepath.Join(p.cfg.StateDir, JournalDir), journal.Options{MaxBytes: p.cfg.JournalMiB << 20})
	if err == nil {
		p.onClose(p.journal.Close)
	}
	return output.Failed(err)
}

func (p *parts) openEngine() error {
	node := ""
	if p.cfg.cluster != nil {
		node = p.cfg.cluster.node
	}
	p.metrics = metrics.New(p.version, node)
	p.metrics.Own.MustRegister(p.journal.Metrics()...)
	p.metrics.Own.MustRegister(netlook.Metrics()...)
	p.agent = &pipeline{
		stateDir: p.cfg.StateDir, log: p.log, metrics: p.metrics, journal: p.journal,
		out:    console.NewText(p.stdout),
		engine: detector.NewEngine(p.rules),
		wake:   make(chan struct{}, 1), recheck: make(chan struct{}, 1),
	}
	if p.cfg.Output == "json" {
		p.agent.out = console.NewJSON(p.stdout)
	}
	return nil
}

func (p *parts) restore() error { return output.Failed(p.agent.restore()) }

func (p *parts) openMutes() error {
	p.mutes = &muteFile{path: p.cfg.MutesPath(), a: p.agent, rules: p.rules, booted: bootedAt()}
	p.mutes.read()
	return nil
}

func (p *parts) openKernel() (err error) {
	targets, _ := p.cfg.targets() // checked by validate
	watched := collector.Config{
		HostRoot: p.cfg.HostRoot, PinRoot: p.cfg.PinRoot, HungTaskAfter: p.cfg.HungTaskAfter,
		Targets: targets, TargetsDir: p.cfg.TargetsDir, NamePod: p.agent.namePod, Seen: p.agent.seen,
	}
	if p.probes != nil {
		watched.TargetSources = []string{ownTargets}
	}
	if p.sources, err = collector.Open(watched, p.log); err != nil {
		return output.Failed(err)
	}
	p.onClose(func() error { return p.sources.Close(!p.cfg.keepsAttached(p.log)) })
	p.agent.canary = p.sources.CanarySeen
	p.metrics.Own.MustRegister(p.sources)
	logReports(p.log, p.sources)
	return output.Failed(p.probes.open(p.sources))
}

func (p *parts) openSelfCheck() error {
	c := selfCheckConfig(p.cfg, p.sources, p.monitors)
	c.StateHangs = p.agent.diskHangs
	if p.pods != nil {
		c.Pods = p.pods.failure
	}
	c.StateDir, c.NoState, c.NoReports = p.stateDir, p.noState, p.noReports
	p.self = &selfCheck{checker: selfcheck.New(c), agent: p.agent, log: p.log}
	p.agent.lasting = p.reportLasting
	return nil
}

func (p *parts) reportLasting(emit collector.Emit) {
	p.sources.ReportLasting(emit)
	if p.intake != nil {
		p.intake.ReportLasting(emit)
	}
	p.reportChecks(emit)
	p.self.reportLasting(emit)
}

// check returns why the agent does not work, or nil.
func (p *parts) check() error { return errors.Join(p.sources.Check(time.Now()), p.agent.check()) }

func (p *parts) ready() error {
	if !p.started.Load() {
		return errors.New("sources are not attached yet")
	}
	return p.check()
}

func (p *parts) serve(ctx context.Context, g *errgroup.Group) error {
	access := p.cfg.Metrics.Access()
	access.Counts, access.Log = web.NewCounts(), p.log
	if err := p.metrics.Own.Register(access.Counts); err != nil {
		return output.Failed(err)
	}
	if p.cfg.cluster != nil {
		access.API = p.cfg.cluster.unlimited
	}
	p.openPage(ctx)
	figures := func(to *web.Access) http.Handler {
		return web.Handler(p.metrics.Registry, p.check, p.ready, p.self.notes, p.agent.page.Routes(), to)
	}
	if err := web.ListenAndServe(ctx, g, p.log, p.cfg.Listen, "/metrics", access, figures); err != nil {
		return output.Failed(err)
	}
	if !p.cfg.isAgent {
		return nil
	}
	p.agent.problems = metrics.NewProblems(p.metrics.Registry, p.rules.Rules())
	p.agent.reportConditions()
	if err := web.ListenAndServe(ctx, g, p.log, address(p.cfg.NPD.PrometheusAddress, p.cfg.NPD.PrometheusPort), "/metrics", access, figures); err != nil {
		return output.Failed(err)
	}
	status := func(to *web.Access) http.Handler { return web.StatusHandler(p.check, p.agent.conditions, to) }
	return output.Failed(web.ListenAndServe(ctx, g, p.log, address(p.cfg.NPD.Address, p.cfg.NPD.Port), "/conditions", access, status))
}

// start starts the parts, which run until ctx ends.
func (p *parts) start(ctx context.Context, g *errgroup.Group) {
	if p.cfg.RulesDir != "" {
		g.Go(func() error { return p.watchRules(ctx) })
	}
	p.keepChecks()
	for _, r := range p.checks {
		g.Go(func() error { return r.Run(ctx) })
	}
	for _, c := range p.stats {
		g.Go(func() error { return c.Run(ctx) })
	}
	if len(p.checks) > 0 {
		g.Go(func() error { return plugin.ReapOrphans(ctx, p.log) })
	}
	if p.intake != nil {
		g.Go(func() error { return p.intake.Run(ctx, p.agent.observe) })
	}
	if p.reports != nil {
		g.Go(func() error { return p.reports.Serve(ctx) })
	}
	p.services.start(ctx, g)
	if p.pods != nil && p.pods.run != nil {
		g.Go(func() error { return p.pods.run(ctx) })
	}
	p.agent.cluster.start(ctx, g)
	if p.agent.causes != nil {
		g.Go(func() error { return p.agent.causes.Run(ctx) })
	}
	g.Go(func() error { return smallFootprint(ctx, p.log) })
	g.Go(func() error { return p.mutes.watch(ctx) })
	g.Go(func() error { return p.mutes.followClock(ctx) })
	g.Go(func() error { return p.agent.run(ctx) })
	p.probes.start(ctx, g)
	g.Go(func() error {
		p.agent.awaitPods(ctx, p.rules)
		return p.sources.Run(ctx, p.probes.emit(p.agent.take), p.agent.settle)
	})
	g.Go(func() error { return p.logs.Run(ctx, p.agent.takeLine, p.agent.settle) })
	g.Go(func() error { return p.self.run(ctx) })
	p.started.Store(true)
}
