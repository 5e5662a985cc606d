package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/document"
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
		RunE: runAgent,
	}
	agent.RunFlags(cmd.Flags())
	completeSettings(cmd)
	return cmd
}

func runAgent(cmd *cobra.Command, _ []string) error {
	cfg, err := agent.Load(cmd.Flags(), os.Environ())
	if err != nil {
		return err
	}
	return agent.Run(cmd.Context(), version, cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
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
		RunE:    runAgent,
	}
	agent.Flags(cmd.Flags())
	completeSettings(cmd)
	return cmd
}

func newConfig() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Show the configuration"}
	cmd.AddCommand(newConfigPrint())
	return cmd
}

func newConfigPrint() *cobra.Command {
	var of string
	var format *output.Format
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the effective configuration and where each value comes from",
		Long: `Print the configuration that "kernosis agent" (or "kernosis run", with --for run)
gets from the same flags, environment and file. The output is a valid configuration
file; a comment names the source of each value. --as table and --as json have the source
of each value too; -o is a setting of the agent.`,
		Example: `  kernosis config print --config /etc/kernosis/config.yaml
  kernosis config print --for run --as table | grep -v default`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags := cmd.Flags()
			switch of {
			case "agent":
			case "run":
				var err error
				if flags, err = flagsOfRun(flags); err != nil {
					return err
				}
			default:
				return fmt.Errorf("for: %q: want agent or run", of)
			}
			cfg, err := agent.Load(flags, os.Environ())
			if err != nil {
				return err
			}
			for _, w := range cfg.Warnings() {
				fmt.Fprintln(cmd.ErrOrStderr(), "kernosis: warning:", w)
			}
			return output.Failed(printConfig(cmd.OutOrStdout(), &cfg, format))
		},
	}
	agent.Flags(cmd.Flags())
	completeSettings(cmd)
	cmd.Flags().StringVar(&of, "for", "agent", "`command` whose defaults are used: agent or run")
	completeFlag(cmd, "for", func() []string { return []string{"agent", "run"} })
	format = output.AddFlag(cmd, "as", "", output.YAML, output.Table, output.Wide, output.JSON)
	return cmd
}

func printConfig(w io.Writer, c *agent.Config, format *output.Format) error {
	doc, err := c.Document()
	if err != nil {
		return err
	}
	if format.Is(output.YAML) {
		text, err := document.EncodeYAML(doc)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}
	settings := []setting{}
	rows := &output.Rows{}
	rows.Add("KEY", "VALUE", "FROM")
	for i := 0; i+1 < len(doc.Content); i += 2 {
		s := setting{Key: doc.Content[i].Value, From: c.OriginOf(doc.Content[i].Value)}
		if err := doc.Content[i+1].Decode(&s.Value); err != nil {
			return fmt.Errorf("%s: %w", s.Key, err)
		}
		text, err := json.Marshal(s.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Key, err)
		}
		settings = append(settings, s)
		rows.Add(s.Key, string(text), s.From)
	}
	return format.Write(w, settings, func() error { return rows.Write(w) })
}

type setting struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
	From  string `json:"from"`
}

// flagsOfRun returns the flags of "kernosis run" with the values given to "config print".
func flagsOfRun(given *pflag.FlagSet) (*pflag.FlagSet, error) {
	run := newRun().Flags()
	var errs []error
	given.Visit(func(f *pflag.Flag) {
		switch of := run.Lookup(f.Name); {
		case of != nil:
			of.Value, of.Changed = f.Value, true
		case f.Name != "for" && f.Name != "as":
			errs = append(errs, fmt.Errorf("--%s: is not a flag of kernosis run", f.Name))
		}
	})
	return run, errors.Join(errs...)
}
