package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/collector/probe/active"
	"github.com/kernosis/kernosis/collector/probe/service"
	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/collector/statefile"
)

// services are those that are probed: the configured ones, and those that were found
// meanwhile. A nil one has none.
type services struct {
	mu    sync.Mutex
	all   []service.Service
	found []string // of them
	// dropped is called for one that was found and is dropped; nil: nothing probes yet.
	dropped func(name string)
}

func (s *services) list() []service.Service {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

func (s *services) add(one service.Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.found = append(s.all, one), append(s.found, one.Name)
}

func (s *services) drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(o service.Service) bool { return o.Name == name })
	s.found = slices.DeleteFunc(s.found, func(o string) bool { return o == name })
	if s.dropped != nil {
		s.dropped(name)
	}
}

// configured returns a copy without those that were found, and these.
func (s *services) configured() (c *services, found []service.Service) {
	c = &services{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if slices.Contains(s.found, one.Name) {
			found = append(found, one)
		} else {
			c.all = append(c.all, one)
		}
	}
	return c, found
}

// findEvery is how often services are looked for that were not there: kube-proxy may start
// after the agent.
const findEvery = time.Minute

// serviceProbes are the services at work; one without a runner is off.
type serviceProbes struct {
	runner *service.Runner
	prober *active.Prober
	fs     hostfs.FS
	cfg    Config
	agent  *pipeline
	mutes  *muteFile
	log    *slog.Logger
	saving bounded.Calls // writes of what was found
}

func (p *parts) openServices() error {
	cfg, fs := p.cfg, hostfs.New(p.cfg.HostRoot)
	p.services = &serviceProbes{cfg: cfg, agent: p.agent, mutes: p.mutes, log: p.log, fs: fs, prober: active.New(fs)}
	all := cfg.services.list()
	if len(all) == 0 && len(p.services.wanted()) == 0 {
		return nil
	}
	for i := range all {
		if all[i].Name == service.APIServer {
			if err := cfg.reachAPIServer(&all[i]); err != nil {
				return output.Failed(cfg.serviceError(-1, "known", "%w", err))
			}
		}
	}
	c := service.Config{FS: fs, Prober: p.services.prober, Report: p.agent.observe, Earlier: p.agent.earlier, Log: p.log, Start: time.Now()}
	if slices.ContainsFunc(all, func(s service.Service) bool { return s.Handler == string(probe.Exec) }) {
		if c.Groups = openServiceGroups(p.log); c.Groups != nil {
			p.onClose(func() error { c.Groups.Close(); return nil })
		}
	}
	runner := service.New(c)
	p.services.runner, cfg.services.dropped = runner, runner.Remove
	if err := p.metrics.Own.Register(runner); err != nil {
		return output.Failed(fmt.Errorf("services: %w", err))
	}
	return output.Failed(runner.Add(all...))
}

// openServiceGroups makes what bounds the processes of programs; nil where that can't be.
func openServiceGroups(log *slog.Logger) *process.Groups {
	const most = 256 // processes and threads of one
	own, err := process.OwnCgroup()
	var groups *process.Groups
	if err == nil {
		groups, err = process.OpenGroups(filepath.Join(own, "kernosis-services"), process.Limits{Processes: most}, log)
	}
	if err != nil {
		log.Info("programs of services run without control groups of their own", "reason", err)
		return nil
	}
	return groups
}

// reachAPIServer fills in where the API server is and which certificates it has, unless
// the configuration says it.
func (c *Config) reachAPIServer(s *service.Service) error {
	if s.Address != "" {
		return nil
	}
	if c.cluster == nil {
		return fmt.Errorf("%s: there is no cluster that says where it is", s.Name)
	}
	u, _, err := rest.DefaultServerUrlFor(c.cluster.rest)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	s.Handler, s.Address, s.Path = u.Scheme, u.Host, strings.TrimSuffix(u.Path, "/")+s.Path
	if u.Port() == "" {
		s.Address = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	if s.CA == "" && u.Scheme == "https" {
		if s.TLS, err = rest.TLSConfigFor(c.cluster.rest); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}

// wanted are the names of services that are to be found, and are not yet.
func (p *serviceProbes) wanted() []string {
	if !slices.Contains(p.cfg.Services.Known, serviceAuto) {
		return nil
	}
	return slices.DeleteFunc(service.Findable(), func(name string) bool {
		return slices.ContainsFunc(p.cfg.services.list(), func(s service.Service) bool { return s.Name == name })
	})
}

func (p *serviceProbes) start(ctx context.Context, g *errgroup.Group) {
	if p.runner == nil {
		return
	}
	g.Go(func() error { return p.runner.Run(ctx) })
	if slices.Contains(p.cfg.Services.Known, serviceAuto) {
		g.Go(func() error {
			p.find(ctx)
			return nil
		})
	}
}

// find looks for services that are wanted, also those that were dropped.
func (p *serviceProbes) find(ctx context.Context) {
	tick := time.NewTicker(findEvery)
	defer tick.Stop()
	for {
		if wanted := p.wanted(); len(wanted) > 0 {
			for _, s := range service.Find(ctx, p.fs, p.prober, wanted) {
				p.found(s)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// found probes a service from now on, unless something else sets its condition.
func (p *serviceProbes) found(s service.Service) {
	if rule := p.agent.ruleOfCondition(s.Condition); rule != "" && rule != ServiceRuleName(s.Name) {
		p.log.Debug("service is not probed: a rule has its condition", "service", s.Name, "condition", s.Condition, "rule", rule)
		return
	}
	p.cfg.services.add(s)
	err := p.runner.Add(s)
	if err == nil {
		err = reloadRules(p.agent, p.cfg, p.mutes)
	}
	if err != nil {
		p.cfg.services.drop(s.Name)
		p.log.Error("service is not probed", "service", s.Name, "error", err)
		return
	}
	if slices.Contains(p.wanted(), s.Name) {
		return // a rule that has just come has its condition
	}
	p.log.Info("service found", "service", s.Name, "endpoint", s.Endpoint(), "condition", s.Condition)
	p.remember()
}

// foundVersion changes when an older version of Kernosis must not read the form any more.
const foundVersion = 1

// foundServices is the file of services that were found.
type foundServices struct {
	BootID string   `json:"bootID"` // what there was before says nothing
	Found  []string `json:"found"`
}

func (c *Config) foundServicesPath() string { return filepath.Join(c.StateDir, "services.json") }

// rememberServices puts services in force that were found earlier since the node has booted:
// one that is down now is not to be forgotten by a restart of the agent.
func (c *Config) rememberServices(log *slog.Logger) {
	if !slices.Contains(c.Services.Known, serviceAuto) {
		return
	}
	var f foundServices
	if _, err := (statefile.File{Path: c.foundServicesPath()}).Load(foundVersion, &f); err != nil {
		log.Warn("can't read services discovered earlier", "error", err)
	}
	if f.BootID != hostfs.BootID() {
		return
	}
	for _, s := range service.Known() {
		known := slices.ContainsFunc(c.services.list(), func(o service.Service) bool { return o.Name == s.Name })
		if !known && slices.Contains(service.Findable(), s.Name) && slices.Contains(f.Found, s.Name) {
			c.services.add(s)
		}
	}
}

func (p *serviceProbes) remember() {
	f := foundServices{BootID: hostfs.BootID()}
	p.cfg.services.mu.Lock()
	f.Found = slices.Clone(p.cfg.services.found)
	p.cfg.services.mu.Unlock()
	file := statefile.File{Path: p.cfg.foundServicesPath()}
	if err := bounded.Err(&p.saving, time.Second, func() error { return file.Save(f) }); err != nil { // the disk may hang
		p.log.Warn("discovered services not saved", "error", err)
	}
}
