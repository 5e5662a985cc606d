package main

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

	"github.com/kernosis/kernosis/collector"
	"github.com/kernosis/kernosis/collector/logsource"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/collector/plugin"
	"github.com/kernosis/kernosis/collector/systemstats"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/npd"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/metrics"
	"github.com/kernosis/kernosis/reporter/web"
)

// parts are what a running agent is made of.
type parts struct {
	cfg      agentConfig // the state folder and remembered services are filled in by parts
	log      *slog.Logger
	stdout   io.Writer
	stateDir string // as configured
	noState  error  // why that can't be used; nil: it is

	changed  func() bool // whether the files of rules have changed
	rules    *detector.RuleSet
	monitors *npd.Set
	journal  *journal.Journal
	metrics  *metrics.Metrics
	agent    *agent
	probes   *probes
	pods     *podSource
	causes   *diagnoses
	mutes    *muteFile
	sources  *collector.Sources
	logs     *logsource.Sources
	checks   []*plugin.Runner
	stats    []*systemstats.Collector
	reports  *reports
	self     *selfCheck
	services *serviceProbes

	started atomic.Bool // sources are attached
	closers []func() error
}

// part is one of an agent's.
type part struct {
	name string
	// after are the parts that are open before it, as it needs them.
	after []string
	open  func(*parts) error
}

// agentParts returns the parts in the order in which they are opened; they are closed in the
// opposite one.
func agentParts() []part {
	return []part{
		{"state", nil, (*parts).openState},
		{"rules", []string{"state"}, (*parts).openRules}, // for services that an earlier run has found
		{"rights", []string{"state", "rules"}, (*parts).dropRights},
		{"journal", []string{"state"}, (*parts).openJournal},
		{"engine", []string{"rules", "journal"}, (*parts).openEngine},
		{"probes", []string{"engine"}, (*parts).openProbes},
		{"pods", []string{"probes"}, (*parts).openPods},
		{"diagnoses", []string{"pods"}, (*parts).openDiagnoses},
		{"restore", []string{"pods", "diagnoses"}, (*parts).restore},
		// What the restore journals again the last run has reported.
		{"cluster", []string{"restore"}, (*parts).openCluster},
		{"mutes", []string{"cluster"}, (*parts).openMutes},
		{"kernel", []string{"probes", "pods", "rights"}, (*parts).openKernel},
		{"logs", []string{"rules", "rights"}, (*parts).openLogs},
		{"checks", []string{"engine"}, (*parts).openChecks},
		{"reports", []string{"engine"}, (*parts).openReports},
		{"self-check", []string{"kernel", "reports"}, (*parts).openSelfCheck},
		{"services", []string{"mutes"}, (*parts).openServices},
	}
}

// onClose adds what is done when the agent ends, before what was added earlier.
func (p *parts) onClose(f func() error) { p.closers = append(p.closers, f) }

func (p *parts) close() error {
	var errs []error
	for _, f := range slices.Backward(p.closers) {
		errs = append(errs, failed(f()))
	}
	return errors.Join(errs...)
}

func (p *parts) openState() error {
	p.stateDir = p.cfg.StateDir
	lacking, release, err := p.cfg.openState()
	if err != nil {
		return failed(err)
	}
	p.noState = lacking
	p.onClose(release)
	p.cfg.rememberServices(p.log)
	return nil
}

func (p *parts) openRules() (err error) {
	p.changed = changes(p.cfg.RulesDir)
	p.rules, p.monitors, err = p.cfg.rulesNow()
	if err == nil {
		logWarnings(p.monitors, p.log)
	}
	return err
}

func (p *parts) dropRights() error {
	dropRights(p.cfg, p.monitors, p.noState, p.log)
	return nil
}

func (p *parts) openJournal() (err error) {
	p.journal, err = journal.Open(filepath.Join(p.cfg.StateDir, journalDir), journal.Options{MaxBytes: p.cfg.JournalMiB << 20})
	if err == nil {
		p.onClose(p.journal.Close)
	}
	return failed(err)
}

func (p *parts) openEngine() error {
	p.metrics = metrics.New(version, p.cfg.kube.nodeLabel())
	p.metrics.Own.MustRegister(p.journal.Metrics()...)
	p.metrics.Own.MustRegister(netlook.Metrics()...)
	p.agent = &agent{
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

func (p *parts) openProbes() (err error) {
	p.probes, err = newProbes(p.cfg, p.agent, p.log)
	return failed(err)
}

func (p *parts) openPods() (err error) {
	if p.pods, err = openPods(p.cfg, p.agent, p.probes, p.log); err != nil {
		return failed(err)
	}
	if p.pods != nil {
		p.agent.pods = p.pods
	}
	p.agent.warnOfLabels(p.rules)
	return nil
}

func (p *parts) openDiagnoses() (err error) {
	if p.causes, err = openDiagnoses(p.cfg, p.agent, p.pods, p.log); err != nil {
		return err
	}
	p.onClose(func() error { p.causes.close(); return nil })
	if p.causes != nil {
		p.agent.causes = p.causes.worker
	}
	return nil
}

func (p *parts) restore() error { return failed(p.agent.restore()) }

func (p *parts) openCluster() (err error) {
	if p.agent.cluster, err = openCluster(p.cfg, p.agent, p.pods, p.causes, p.log); err != nil {
		return failed(err)
	}
	p.agent.reportConditions()
	return nil
}

func (p *parts) openMutes() error {
	p.mutes = newMuteFile(p.cfg.mutesPath(), p.agent, p.rules)
	p.mutes.read()
	return nil
}

func (p *parts) openKernel() (err error) {
	watched := p.cfg.collector(p.probes.targetSources())
	watched.NamePod = p.agent.namePod
	if p.sources, err = collector.Open(watched, p.log); err != nil {
		return failed(err)
	}
	p.onClose(func() error { return p.sources.Close(!p.cfg.keepsAttached(p.log)) })
	p.agent.canary = p.sources.CanarySeen
	p.metrics.Own.MustRegister(p.sources)
	logReports(p.log, p.sources)
	return failed(p.probes.open(p.sources))
}

func (p *parts) openLogs() (err error) {
	if p.logs, err = openLogs(p.cfg, p.monitors, p.rules, p.log); err != nil {
		return failed(err)
	}
	p.agent.patterns = p.logs.SetPatterns
	p.metrics.Own.MustRegister(p.logs)
	return nil
}

func (p *parts) openChecks() (err error) {
	if p.checks, err = newChecks(p.monitors, p.cfg.HostRoot, p.metrics, p.log, p.agent.observe); err != nil {
		return err
	}
	p.stats, err = newStats(p.monitors, p.metrics, p.log, p.cfg.npd)
	return err
}

func (p *parts) openReports() (err error) {
	if p.reports, err = openReports(p.cfg, p.agent, p.metrics, p.log); err != nil {
		return failed(err)
	}
	p.onClose(p.reports.Close)
	return nil
}

func (p *parts) openSelfCheck() error {
	c := selfCheckConfig(p.cfg, p.sources)
	c.StateHangs = p.agent.diskHangs
	if p.pods != nil {
		c.Pods = p.pods.failure
	}
	c.Logs, c.StateDir, c.NoState, c.NoReports = selfCheckLogs(p.cfg, p.monitors), p.stateDir, p.noState, p.reports.lacking
	p.self = newSelfCheck(c, p.agent, p.log)
	p.agent.lasting = p.reportLasting
	p.agent.cluster.health(p.check, p.self.notes)
	return nil
}

func (p *parts) openServices() (err error) {
	if p.services, err = openServices(p.cfg, p.agent, p.metrics, p.mutes, p.log); err != nil {
		return failed(err)
	}
	p.onClose(func() error { p.services.close(); return nil })
	return nil
}

// reportLasting has what lasts reported once more.
func (p *parts) reportLasting(emit collector.Emit) {
	p.sources.ReportLasting(emit)
	p.reports.reportLasting(emit)
	p.self.reportLasting(emit)
}

// check returns why the agent does not do its work; nil: it does.
func (p *parts) check() error { return errors.Join(p.sources.Check(time.Now()), p.agent.check()) }

func (p *parts) ready() error {
	if !p.started.Load() {
		return errors.New("sources are not attached yet")
	}
	return p.check()
}

// serve opens the HTTP servers.
func (p *parts) serve(ctx context.Context, g *errgroup.Group) error {
	access, err := p.cfg.access(p.metrics, p.log)
	if err != nil {
		return failed(err)
	}
	p.openPage(ctx)
	figures := func(to *web.Access) http.Handler {
		return web.Handler(p.metrics.Registry, p.check, p.ready, p.self.notes, p.agent.page.Routes(), to)
	}
	if err := serve(ctx, g, p.log, p.cfg.Listen, "/metrics", access, figures); err != nil {
		return failed(err)
	}
	if p.cfg.npd == nil {
		return nil
	}
	if p.agent.problems, err = metrics.NewProblems(p.metrics.Registry, problemKinds(p.rules)); err != nil {
		return failed(err)
	}
	p.agent.reportConditions()
	if err := serve(ctx, g, p.log, p.cfg.npd.metrics, "/metrics", access, figures); err != nil {
		return failed(err)
	}
	status := func(to *web.Access) http.Handler { return web.StatusHandler(p.check, p.agent.conditions, to) }
	return failed(serve(ctx, g, p.log, p.cfg.npd.status, "/conditions", access, status))
}

// start runs the parts until ctx ends.
func (p *parts) start(ctx context.Context, g *errgroup.Group) {
	if p.cfg.RulesDir != "" {
		g.Go(func() error { return watchRules(ctx, p.agent, p.cfg, p.log, p.mutes, p.changed) })
	}
	startNPD(ctx, g, p.checks, p.stats, p.log)
	p.reports.start(ctx, g, p.agent.observe)
	p.services.start(ctx, g)
	p.pods.start(ctx, g)
	p.agent.cluster.start(ctx, g)
	p.causes.start(ctx, g)
	g.Go(func() error { return smallFootprint(ctx, p.log) })
	g.Go(func() error { return p.mutes.watch(ctx) })
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
