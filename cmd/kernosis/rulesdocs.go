package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/ruledoc"
)

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
