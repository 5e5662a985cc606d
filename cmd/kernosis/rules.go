package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe/service"
	"github.com/kernosis/kernosis/deploy/monitoring"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/detector/ruledoc"
)

func newRules() *cobra.Command {
	cmd := &cobra.Command{Use: "rules", Short: "Check, list, test and document rule files"}
	cmd.AddCommand(newRulesCheck(), newRulesList(), newRulesTest(), newRulesDocs(), newRulesSchema(), newRulesAlerts())
	return cmd
}

func newRulesCheck() *cobra.Command {
	return &cobra.Command{
		Use:     "check [FILE|DIR]",
		Short:   "Check the shipped rules together with those of a file or folder",
		Long:    "Check the shipped rules together with those of a file or folder. All mistakes are\nreported together, as file:line:column; the exit code is 2 then.",
		Example: "  kernosis rules check /etc/kernosis/rules\n  kernosis rules check own.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := checkedRules(firstOf(args))
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d rules, %d conditions: ok\n", len(set.Rules()), len(set.Conditions()))
			if readers := set.PodLabelReaders(); len(readers) > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "pod.labels is empty if the agent can't list the node's pods; rules that read it: %s\n", strings.Join(readers, ", "))
			}
			return nil
		},
	}
}

// checkedRules loads the shipped rules, overridden by those of a file or folder; "" for none.
func checkedRules(path string) (*detector.RuleSet, error) {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return detector.LoadFile(path, detector.Shipped())
	}
	return agent.LoadRules(path)
}

func firstOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func newRulesList() *cobra.Command {
	var format *output.Format
	cmd := &cobra.Command{
		Use:   "list [FILE|DIR]",
		Short: "List the shipped rules together with those of a file or folder",
		Long: `List the shipped rules together with those of a file or folder: what each reports, as an
Event or a condition, and its file. A rule of the folder replaces the shipped rule of the
same name.

Exit code: 0; 2 a file has a mistake.`,
		Example: `  kernosis rules list
  kernosis rules list /etc/kernosis/rules -o wide
  kernosis rules list -o json | jq -r '.[] | select(.severity == "critical").name'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := checkedRules(firstOf(args))
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			return output.Failed(format.Write(w, listedRules(set), func() error { return tabulateRules(w, set, format.Is(output.Wide)) }))
		},
	}
	format = output.Add(cmd)
	return cmd
}

type listedRule struct {
	Name      string           `json:"name"`
	Fault     string           `json:"fault"`
	Severity  problem.Severity `json:"severity"`
	Condition string           `json:"condition,omitempty"` // empty: it is reported as an Event
	Reason    string           `json:"reason"`
	Events    []event.Kind     `json:"events"`
	Message   string           `json:"message"`
	Doc       string           `json:"doc,omitempty"`
	File      string           `json:"file"`
	Line      int              `json:"line"`
	Shipped   bool             `json:"shipped"`
}

func listedRules(set *detector.RuleSet) []listedRule {
	list := []listedRule{}
	for _, r := range set.Rules() {
		list = append(list, listedRule{r.Name, r.Fault, r.Severity, r.Condition, r.Reason, r.Events, r.Message, r.Doc, r.File, r.Line, r.Layer == 0})
	}
	return list
}

// tabulateRules writes a table; all: also each rule's events and doc page.
func tabulateRules(w io.Writer, set *detector.RuleSet, all bool) error {
	rows := &output.Rows{}
	if !all {
		rows.Most = 5
	}
	rows.Add("RULE", "SEVERITY", "REPORTED AS", "REASON", "FROM", "EVENTS", "DOC")
	for _, r := range set.Rules() {
		from := "shipped"
		if r.Layer > 0 {
			from = fmt.Sprintf("%s:%d", r.File, r.Line)
		}
		var events []string
		for _, k := range r.Events {
			events = append(events, string(k))
		}
		rows.Add(r.Name, string(r.Severity), cmp.Or(r.Condition, "Event"), r.Reason, from, strings.Join(events, ","), r.Doc)
	}
	return rows.Write(w)
}

func newRulesDocs() *cobra.Command {
	var dir, rulesDir, base string
	cmd := &cobra.Command{
		Use:   "docs [RULE]",
		Short: "Write a page of Markdown for each rule, and an index",
		Long: `Write a Markdown page for each rule and an index to a folder, or print the page of one
rule. Pages of rules that no longer exist are not removed.`,
		Example: `  kernosis rules docs oom-kill
  kernosis rules docs --dir pages --rules /etc/kernosis/rules`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeFirst(func() []string { return ruleNames(rulesDir) }),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := agent.LoadRules(rulesDir)
			if err != nil {
				return err
			}
			pages := ruledoc.Pages(set, base)
			if rule := firstOf(args); rule != "" {
				for _, p := range pages[1:] {
					if p.Name == rule+".md" {
						fmt.Fprint(cmd.OutOrStdout(), p.Text)
						return nil
					}
				}
				return fmt.Errorf("unknown rule %q", rule)
			}
			if dir == "" {
				return errors.New("--dir or a RULE is required")
			}
			if err := writePages(dir, pages); err != nil {
				return output.Failed(err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %d pages\n", dir, len(pages))
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "`folder` to write to; created if it is missing")
	cmd.Flags().StringVar(&rulesDir, "rules", "", "`folder` of rule files over the shipped ones")
	cmd.Flags().StringVar(&base, "doc-base", "", "base `URL` for links to pages of rules")
	return cmd
}

func writePages(dir string, pages []ruledoc.Page) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("rules docs: %w", err)
	}
	for _, p := range pages {
		if err := os.WriteFile(filepath.Join(dir, p.Name), []byte(p.Text), 0o644); err != nil { //nolint:gosec // pages for everybody
			return fmt.Errorf("rules docs: %w", err)
		}
	}
	return nil
}

func newRulesSchema() *cobra.Command {
	return &cobra.Command{
		Use:       "schema [rules|tests|mutes]",
		Short:     "Print the JSON Schema of rule files, of their tests or of mutes, for editors",
		Example:   "  kernosis rules schema >rules.schema.json",
		ValidArgs: []string{"rules", "tests", "mutes"},
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := detector.Schema(cmp.Or(firstOf(args), "rules"))
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(data)
			return output.Failed(err)
		},
	}
}

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
	fs.StringVar(&to.ControllerJob, "controller-job", monitoring.DefaultControllerJob, "`regexp` that matches the job label of the controller; empty: no alerts on it")
	return cmd
}

// alertDoc returns the doc page of a rule. All rules of known services share one page.
func alertDoc(r *detector.Rule) string {
	if r.Doc == "" && slices.ContainsFunc(service.Known(), func(s service.Service) bool { return agent.ServiceRuleName(s.Name) == r.Name }) {
		return "runbooks/ServiceUnhealthy"
	}
	return r.Doc
}
