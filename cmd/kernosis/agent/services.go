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

// services are the probed services: configured and discovered ones. A nil services is empty.
type services struct {
	mu      sync.Mutex
	all     []service.Service
	found   []string          // names of the discovered ones
	dropped []string          // names of dropped ones that are still probed
	end     func(name string) // ends the probes of a service; nil before the runner exists
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
	if s.end != nil {
		s.dropped = append(s.dropped, name)
	}
}

// endDropped ends the probes of dropped services. While a rule in force reads a service, that makes its
// condition Unknown.
func (s *services) endDropped() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.dropped {
		s.end(name)
	}
	s.dropped = nil
}

// configured returns a copy without the discovered services, and the discovered services.
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

// findEvery is how often missing services are looked for: kube-proxy may start after the agent.
const findEvery = time.Minute

// serviceProbes probes services. Without a runner it is off.
type serviceProbes struct {
	runner *service.Runner
	prober *active.Prober
	fs     hostfs.FS
	cfg    Config
	agent  *pipeline
	mutes  *muteFile
	log    *slog.Logger
	saving bounded.Calls // writes of the file of discovered services
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
	p.services.runner, cfg.services.end = runner, runner.Remove
	if err := p.metrics.Own.Register(runner); err != nil {
		return output.Failed(fmt.Errorf("services: %w", err))
	}
	return output.Failed(runner.Add(all...))
}

// openServiceGroups creates the cgroups that limit the processes of programs. It returns nil if that
// is not possible.
func openServiceGroups(log *slog.Logger) *process.Groups {
	const most = 256 // processes and threads of one program
	own, err := process.OwnCgroup()
	var groups *process.Groups
	if err == nil {
		groups, err = process.OpenGroups(filepath.Join(own, "kernosis-services"), process.Limits{Processes: most}, log)
	}
	if err != nil {
		log.Info("programs of services run without their own control groups", "reason", err)
		return nil
	}
	return groups
}

// reachAPIServer fills in the API server's address and TLS configuration, unless the address is
// configured.
func (c *Config) reachAPIServer(s *service.Service) error {
	if s.Address != "" {
		return nil
	}
	if c.cluster == nil {
		return fmt.Errorf("%s: no cluster is configured, and no address given", s.Name)
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

// wanted returns the names of the services to discover that are not found yet.
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

// find looks for wanted services, including dropped ones, until ctx ends.
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

// found starts to probe a service, unless another rule sets its condition.
func (p *serviceProbes) found(s service.Service) {
	if rule := p.agent.ruleOfCondition(s.Condition); rule != "" && rule != ServiceRuleName(s.Name) {
		p.log.Debug("service is not probed: a rule already sets its condition", "service", s.Name, "condition", s.Condition, "rule", rule)
		return
	}
	p.cfg.services.add(s)
	err := p.runner.Add(s)
	if err == nil {
		err = reloadRules(p.agent, p.cfg, p.mutes)
	}
	if err != nil {
		p.cfg.services.drop(s.Name)
		p.cfg.services.endDropped()
		p.log.Error("service is not probed", "service", s.Name, "error", err)
		return
	}
	if slices.Contains(p.wanted(), s.Name) {
		return // it was dropped: a new rule sets its condition
	}
	p.log.Info("service found", "service", s.Name, "endpoint", s.Endpoint(), "condition", s.Condition)
	p.remember()
}

// foundVersion changes when older versions of Kernosis must not read the format any more.
const foundVersion = 1

// foundServices is the content of the file of discovered services.
type foundServices struct {
	BootID string   `json:"bootID"` // services of an earlier boot are ignored
	Found  []string `json:"found"`
}

func (c *Config) foundServicesPath() string { return filepath.Join(c.StateDir, "services.json") }

// rememberServices adds the services that were discovered earlier in this boot, so that a restart of
// the agent does not forget a service that is down now.
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
