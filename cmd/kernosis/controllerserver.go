package main

import (
	"context"
	"log/slog"
	"net/http"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kernosis/kernosis/reporter/web"
)

// controllerServer serves metrics and the web page of a controller, with or without leadership.
type controllerServer struct {
	address string
	access  *web.AccessConfig
	fleet   *fleetNodes
	log     *slog.Logger
}

// addServer adds a controllerServer to the manager.
func addServer(m manager.Manager, cfg controllerConfig, fleet *fleetNodes, log *slog.Logger) (remove func(), err error) {
	to := cfg.Metrics.Access()
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
	pages := web.NewFleetPage(web.FleetPageConfig{Version: version, Ended: ctx.Done(), Nodes: c.fleet.read}).Routes()
	handler := func(a *web.Access) http.Handler { return web.MetricsHandler(ctrlmetrics.Registry, pages, a) }
	if err := web.ListenAndServe(ctx, g, c.log, c.address, "/metrics", c.access, handler); err != nil {
		return err
	}
	return g.Wait()
}
