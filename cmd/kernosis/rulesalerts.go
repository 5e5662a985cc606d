package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/collector/probe/service"
	"github.com/kernosis/kernosis/deploy/alerts"
	"github.com/kernosis/kernosis/detector"
)

func newRulesAlerts() *cobra.Command {
	var cfg agentConfig
	to := alerts.Config{Doc: alertDoc}
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
			set, err := alertRules(cfg)
			if err != nil {
				return err
			}
			file, err := alerts.Of(set, to)
			if err != nil {
				return failed(err)
			}
			text, err := file.Encode()
			if err != nil {
				return failed(err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return failed(err)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&cfg.RulesDir, "rules-dir", "", "`folder` of rule files over the shipped ones, as the agent's")
	fs.StringSliceVar(&cfg.ShippedRules, "shipped-rules", []string{"*"}, "which `files` of shipped rules are in force, as the agent's")
	fs.StringSliceVar(&cfg.NPD.SystemLog, flagSystemLog, nil, "`files` of node-problem-detector's system-log-monitor, as the agent's")
	fs.StringSliceVar(&cfg.NPD.CustomPlugin, flagCustomPlugin, nil, "`files` of its custom-plugin-monitor")
	fs.StringVar(&to.RunbookBase, "runbook-base", alerts.DefaultRunbookBase, "`URL` of the folder of pages, before a rule's doc; empty: no runbook_url")
	fs.StringVar(&to.DashboardBase, "dashboard-base", "", "Grafana's `URL`, before /d/ and a dashboard; empty: no dashboard_url")
	fs.StringVar(&to.AgentJob, "agent-job", alerts.DefaultAgentJob, "`regexp` of the label job of agents")
	fs.StringVar(&to.ControllerJob, "controller-job", alerts.DefaultControllerJob, "`regexp` of the label job of the controller")
	return cmd
}

// alertRules returns the rules that agents have: with those of the services they know,
// unless another rule has the condition.
func alertRules(cfg agentConfig) (*detector.RuleSet, error) {
	if err := cfg.readNPD(); err != nil {
		return nil, err
	}
	rules, _, err := cfg.rules()
	if err != nil {
		return nil, err
	}
	known := slices.DeleteFunc(service.Known(), func(s service.Service) bool {
		return slices.ContainsFunc(rules.Conditions(), func(c detector.ConditionSpec) bool { return strings.EqualFold(c.Type, s.Condition) })
	})
	cfg.services = &services{all: known}
	rules, _, err = cfg.rules()
	return rules, err
}

// alertDoc is the page of a rule: those of services have one together.
func alertDoc(r *detector.Rule) string {
	if r.Doc == "" && slices.ContainsFunc(service.Known(), func(s service.Service) bool { return serviceRuleName(s.Name) == r.Name }) {
		return "runbooks/ServiceUnhealthy"
	}
	return r.Doc
}
