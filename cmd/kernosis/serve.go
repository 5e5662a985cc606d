package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kernosis/kernosis/reporter/metrics"
	"github.com/kernosis/kernosis/reporter/page"
	"github.com/kernosis/kernosis/reporter/web"
)

// metricsSettings are of what is served at addresses that others than this machine reach.
type metricsSettings struct {
	CertFile string `mapstructure:"metrics-cert-file" yaml:"metrics-cert-file"`
	KeyFile  string `mapstructure:"metrics-key-file" yaml:"metrics-key-file"`
	Plain    bool   `mapstructure:"metrics-plain-http" yaml:"metrics-plain-http"`
}

func metricsFlags(fs *pflag.FlagSet) {
	fs.String("metrics-cert-file", "", "`file` with the certificate for addresses other than loopback, in PEM, read again when it changes; empty: one that signs itself")
	fs.String("metrics-key-file", "", "`file` with its key")
	fs.Bool("metrics-plain-http", false, "serve without TLS, and let everybody read who reaches the address")
}

func (s *metricsSettings) access() *web.AccessConfig {
	return &web.AccessConfig{CertFile: s.CertFile, KeyFile: s.KeyFile, Plain: s.Plain}
}

// access says who may read what the agent serves.
func (c *agentConfig) access(m *metrics.Metrics, log *slog.Logger) (*web.AccessConfig, error) {
	to := c.Metrics.access()
	to.Counts, to.Log = web.NewCounts(), log
	if err := m.Own.Register(to.Counts); err != nil {
		return nil, err
	}
	if c.kube != nil {
		to.API = c.kube.unlimited
	}
	return to, nil
}

// controllerServer serves metrics and the web page of a controller, whether it leads or not.
type controllerServer struct {
	address string
	access  *web.AccessConfig
	fleet   *fleetNodes
	log     *slog.Logger
}

// addServer has the manager serve metrics and the page of its nodes.
func addServer(m manager.Manager, cfg controllerConfig, fleet *fleetNodes, log *slog.Logger) (remove func(), err error) {
	to := cfg.Metrics.access()
	to.Counts, to.Log = web.NewControllerCounts(), log
	if to.API, err = kubernetes.NewForConfig(m.GetConfig()); err != nil {
		return nil, err
	}
	if err := ctrlmetrics.Registry.Register(to.Counts); err != nil {
		return nil, err
	}
	remove = func() { ctrlmetrics.Registry.Unregister(to.Counts) }
	if err := m.Add(&controllerServer{cfg.MetricsListen, to, fleet, log}); err != nil {
		remove()
		return nil, err
	}
	return remove, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*controllerServer) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (c *controllerServer) Start(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	pages := page.NewFleet(page.FleetConfig{Version: version, Ended: ctx.Done(), Nodes: c.fleet.read}).Routes()
	handler := func(a *web.Access) http.Handler { return web.MetricsHandler(ctrlmetrics.Registry, pages, a) }
	if err := serve(ctx, g, c.log, c.address, "/metrics", c.access, handler); err != nil {
		return err
	}
	return g.Wait()
}

// serve answers at an address, none where it is empty; path is where to look.
func serve(ctx context.Context, g *errgroup.Group, log *slog.Logger, address, path string, to *web.AccessConfig, h func(*web.Access) http.Handler) error {
	if address == "" {
		return nil
	}
	access, err := to.For(address)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	log.Info("serving", "url", access.Scheme()+"://"+l.Addr().String()+path)
	g.Go(func() error { return web.Serve(ctx, l, h(access), access, to.Counts) })
	return nil
}
