package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/detector"
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
