package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/probe/service"
	"github.com/kernosis/kernosis/deploy/monitoring"
	"github.com/kernosis/kernosis/detector"
)

func newRulesAlerts() *cobra.Command {
	var cfg agent.Config
	to := monitoring.AlertConfig{Doc: alertDoc}
	cmd := &cobra.Command{
		Use:   "alerts",
		Short: "Print Prometheus alerts for the rules in force, and on Kernosis itself",
		Long: `Print a Prometheus rule file with an alert for each condition and each temporary problem
of the rules in force, and alerts on Kernosis itself. Each has a severity, the command to run
next, a runbook_url and, with --dashboard-base, a dashboard_url. See docs/monitoring.md.`,
		Example: `  kernosis rules alerts >kernosis.rules.yaml
  kernosis rules alerts --rules-dir /etc/kernosis/rules`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := cfg.AlertRules()
			if err != nil {
				return err
			}
			file, err := monitoring.AlertsOf(set, to)
			if err != nil {
				return output.Failed(err)
			}
			text, err := file.Encode()
			if err != nil {
				return output.Failed(err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return output.Failed(err)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&cfg.RulesDir, "rules-dir", "", "`folder` of rule files over the shipped ones, as the agent's")
	fs.StringSliceVar(&cfg.ShippedRules, "shipped-rules", []string{"*"}, "which `files` of shipped rules are in force, as the agent's")
	fs.StringSliceVar(&cfg.NPD.SystemLog, agent.FlagSystemLog, nil, "`files` of node-problem-detector's system-log-monitor, as the agent's")
	fs.StringSliceVar(&cfg.NPD.CustomPlugin, agent.FlagCustomPlugin, nil, "`files` of its custom-plugin-monitor")
	fs.StringVar(&to.RunbookBase, "runbook-base", monitoring.Docs, "base `URL` of the runbook pages; empty: no runbook_url")
	fs.StringVar(&to.DashboardBase, "dashboard-base", "", "base `URL` of Grafana; empty: no dashboard_url")
	fs.StringVar(&to.AgentJob, "agent-job", monitoring.DefaultAgentJob, "`regexp` that matches the job label of agents")
	fs.StringVar(&to.ControllerJob, "controller-job", monitoring.DefaultControllerJob, "`regexp` that matches the job label of the controller")
	return cmd
}

// alertDoc returns the doc page of a rule. All rules of known services share one page.
func alertDoc(r *detector.Rule) string {
	if r.Doc == "" && slices.ContainsFunc(service.Known(), func(s service.Service) bool { return agent.ServiceRuleName(s.Name) == r.Name }) {
		return "runbooks/ServiceUnhealthy"
	}
	return r.Doc
}
