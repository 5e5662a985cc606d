package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kernosis/kernosis/reporter/kube/liveness"
)

func newController() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Speak for agents that have gone silent: one or two a cluster",
		Long: `Sets the node conditions of an agent that no longer renews its Lease to Unknown,
so that nobody trusts what it said last. See docs/controller.md.`,
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
	return cmd
}

func runController(ctx context.Context, cfg controllerConfig, stderr io.Writer) error {
	level, err := parseLevel(cfg.LogLevel)
	if err != nil {
		return err
	}
	to, err := cfg.rest()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	// What the libraries say on their own goes the same way.
	ctrllog.SetLogger(logr.FromSlogHandler(log.Handler()))
	klog.SetSlogLogger(log)
	log.Info("controller starts", "version", version, "namespace", cfg.Namespace, "leader_elect", cfg.LeaderElect)
	err = liveness.Run(ctx, to, liveness.Config{
		Namespace: cfg.Namespace, Pods: cfg.AgentPods, Types: cfg.ConditionTypes,
		Silent: cfg.SilentAfter, Draining: cfg.DrainingGrace, StartUp: cfg.StartUpGrace,
		Workers: cfg.Workers, SlowRate: cfg.SlowWrites,
		Election: liveness.Election{
			Enabled: cfg.LeaderElect, Lease: cfg.LeaseDuration, Renew: cfg.RenewDeadline, Retry: cfg.RetryPeriod,
		},
		MetricsListen: cfg.MetricsListen, HealthListen: cfg.HealthListen,
		Metrics: ctrlmetrics.Registry, Log: log,
	})
	if err == nil {
		log.Info("controller ends")
	}
	return failed(err)
}
