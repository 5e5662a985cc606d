package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
)

func newRun() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Detect faults on this machine; no cluster needed",
		Long: `Detect faults on this machine and print each with its subject, its cause and
the rule that matched. Needs root. Without root, or on a kernel that lacks a
feature, run reports what is missing and runs the rest.`,
		Example: `  sudo kernosis run
  sudo kernosis run -o json --rules-dir /etc/kernosis/rules --target 10.0.0.7:8080`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := agent.Load(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			return agent.Run(cmd.Context(), version, cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	agent.RunFlags(cmd.Flags())
	completeSettings(cmd)
	return cmd
}

func newAgentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Detect faults on a node, with node-problem-detector's configuration and interfaces",
		Long: `Run as "kernosis run" does, report to the API server, and accept
node-problem-detector's flags and files: its monitors, checks, statistics,
metrics and /conditions. See docs/npd.md and docs/configuration.md.`,
		Example: `  kernosis agent --kubeconfig /etc/kernosis/kubeconfig --node-name worker-7
  kernosis agent --config /etc/kernosis/config.yaml --config.system-log-monitor /config/kernel-monitor.json`,
		Args:    cobra.NoArgs,
		Version: version, // adds --version, as node-problem-detector has it
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := agent.Load(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			if err := cfg.ReadNPD(); err != nil {
				return err
			}
			if err := cfg.Connect(version); err != nil {
				return err
			}
			return agent.Run(cmd.Context(), version, cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	agent.Flags(cmd.Flags())
	completeSettings(cmd)
	return cmd
}
