package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/diagnose/controller"
	"github.com/kernosis/kernosis/diagnose/controller/repair"
	"github.com/kernosis/kernosis/diagnose/controller/start"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/reporter/kube/leader"
	"github.com/kernosis/kernosis/reporter/kube/liveness"
	"github.com/kernosis/kernosis/reporter/web"
)

func newController() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Set conditions of silent agents to Unknown, manage Diagnoses, decide on repairs",
		Long: `Set the node conditions of agents that stopped renewing their Lease to Unknown. With the
CustomResourceDefinitions installed, the controller also validates OperationSets, Triggers
and RemediationPolicies, creates Diagnoses from alerts, Events and schedules, deletes old
ones, and decides on repairs. Run one or two replicas. See docs/controller.md.`,
		Example: `  kernosis controller --kubeconfig ~/.kube/config --leader-elect=false
  kernosis controller --namespace kernosis`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadController(cmd)
			if err != nil {
				return err
			}
			return runController(cmd.Context(), cfg, cmd.ErrOrStderr())
		},
	}
	controllerFlags(cmd.Flags())
	completeSettings(cmd)
	return cmd
}

func runController(ctx context.Context, cfg controllerConfig, stderr io.Writer) error {
	level, err := config.ParseLevel(cfg.LogLevel)
	if err != nil {
		return err
	}
	to, err := cfg.rest()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	config.LogWarnings(log, cfg.warnings)
	// The libraries log to the same handler.
	ctrllog.SetLogger(logr.FromSlogHandler(log.Handler()))
	klog.SetSlogLogger(log)
	limitMemory("/sys/fs/cgroup/memory.max")
	log.Info("controller starts", "version", version, "namespace", cfg.Namespace, "leader_elect", cfg.LeaderElect)
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kernosis_controller_build_info", Help: "Always 1; the version is in the label.", ConstLabels: prometheus.Labels{"version": version},
	}, func() float64 { return 1 })
	remove, err := leader.Register(ctrlmetrics.Registry, build)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	defer remove()
	err = lead(ctx, to, cfg, log)
	if err == nil {
		log.Info("controller ends")
	}
	return output.Failed(err)
}

// limitMemory sets Go's memory limit to four fifths of the cgroup's limit, if there is one and
// $GOMEMLIMIT is not set, so that garbage is collected more often before the process is killed. The
// rest is for memory that Go does not manage.
func limitMemory(file string) {
	raw, err := os.ReadFile(file)
	if err != nil || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64); err == nil {
		debug.SetMemoryLimit(limit / 5 * 4)
	}
}

// lead runs the parts of the controller, as one of several processes.
func lead(ctx context.Context, to *rest.Config, cfg controllerConfig, log *slog.Logger) error {
	speak := liveness.Config{
		Namespace: cfg.Namespace, Pods: cfg.AgentPods, Types: cfg.ConditionTypes,
		Silent: cfg.SilentAfter, Draining: cfg.DrainingGrace, StartUp: cfg.StartUpGrace,
		Workers: cfg.Workers, SlowRate: cfg.SlowWrites, Annotations: policy.SetKeys,
		Metrics: ctrlmetrics.Registry, Log: log,
	}
	kinds, err := speak.ByObject()
	if err != nil {
		return err
	}
	maps.Copy(kinds, controller.ByObject())
	scheme, err := controller.Scheme()
	if err != nil {
		return err
	}
	m, err := leader.New(to, leader.Config{
		Namespace: cfg.Namespace, ByObject: kinds, NewInformer: controller.NewInformer, Scheme: scheme, Kinds: controller.Mapper(), Log: log,
		Election: leader.Election{
			Enabled: cfg.LeaderElect, Lease: cfg.LeaseDuration, Renew: cfg.RenewDeadline, Retry: cfg.RetryPeriod,
		},
		HealthListen: cfg.HealthListen,
	})
	if err != nil {
		return err
	}
	fleet := &fleetNodes{cache: m.GetCache(), namespace: cfg.Namespace, silent: cfg.SilentAfter}
	removeServer, err := addServer(m, cfg, fleet, log)
	if err != nil {
		return err
	}
	defer removeServer()
	remove, err := liveness.Add(m, speak)
	if err != nil {
		return err
	}
	defer remove()
	// The parts for Diagnoses start once their CRDs are installed.
	served := controller.Served()
	served.Log = log
	served.Missing = func(kinds []string) {
		log.Warn("diagnoses are disabled until the CRDs are installed: kubectl apply -f diagnose/api/crds", "missing", strings.Join(kinds, ","))
	}
	installed := make(chan struct{})
	remove, err = leader.WhenServed(m, served,
		func() (func(), error) {
			return controller.Add(m, controller.Config{
				Namespace: cfg.Namespace, Builtins: catalog.All(operation.Host{}), Silent: cfg.SilentAfter, PodWait: cfg.PodWait,
				PendingSilent: cfg.PendingSilent, RunningSilent: cfg.RunningSilent, MaxEnded: cfg.MaxEnded,
				Workers: cfg.Workers, Metrics: ctrlmetrics.Registry, Log: log,
			})
		},
		func() (func(), error) {
			return repair.Add(m, repair.Config{Namespace: cfg.Namespace, Pods: cfg.AgentPods, DryRun: !cfg.Repairs, Metrics: ctrlmetrics.Registry, Log: log})
		},
		func() (func(), error) {
			fleet.diagnoses.Store(true)
			close(installed)
			return func() {}, nil
		},
	)
	if err != nil {
		return err
	}
	defer remove()
	// These parts create Diagnoses from alerts, Events and schedules once the CRDs are installed. The
	// alert receiver listens before that: an instance that does not lead answers so.
	_, removeStarts, err := start.Add(m, start.Config{
		Namespace: cfg.Namespace, Alerts: cfg.Alerts, Installed: installed, Metrics: ctrlmetrics.Registry, Log: log,
	})
	if err != nil {
		return err
	}
	defer removeStarts()
	return m.Start(ctx)
}

// controllerServer serves metrics and the web page of a controller, with or without leadership.
type controllerServer struct {
	address string
	access  *web.AccessConfig
	fleet   *fleetNodes
	log     *slog.Logger
}

func addServer(m manager.Manager, cfg controllerConfig, fleet *fleetNodes, log *slog.Logger) (remove func(), err error) {
	to := cfg.Metrics.Access()
	to.Counts, to.Log = web.NewControllerCounts(), log
	if to.API, err = kubernetes.NewForConfig(m.GetConfig()); err != nil {
		return nil, err
	}
	if remove, err = leader.Register(ctrlmetrics.Registry, to.Counts); err != nil {
		return nil, err
	}
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
