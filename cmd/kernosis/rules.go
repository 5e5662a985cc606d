package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/detector/rules"
	"github.com/kernosis/kernosis/detector/ruletest"
)

func newRules() *cobra.Command {
	cmd := &cobra.Command{Use: "rules", Short: "Check and test rule files"}
	cmd.AddCommand(newRulesCheck(), newRulesTest())
	return cmd
}

func newRulesCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check [DIR]",
		Short: "Check the shipped rules, with those of a folder over them",
		Long:  "Check the shipped rules, with those of a folder over them. All mistakes are\nreported together, as file:line:column; the exit code is 2 then.",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := loadRules(firstOf(args))
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d rules, %d conditions: ok\n", len(set.Rules()), len(set.Conditions()))
			return nil
		},
	}
}

func newRulesTest() *cobra.Command {
	return &cobra.Command{
		Use:   "test [DIR]",
		Short: "Run the unit tests (*_test.yaml) of the shipped rules, or those of a folder",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := firstOf(args)
			set, err := loadRules(dir)
			if err != nil {
				return err
			}
			tests, err := ruletest.ReadFiles(rules.FS)
			if dir != "" {
				tests, err = ruletest.ReadFiles(os.DirFS(dir))
			}
			if err != nil {
				return err
			}
			report, err := ruletest.Run(set, tests...)
			if err != nil {
				return err
			}
			fmt.Fprint(cmd.OutOrStdout(), report)
			if report.Failed() > 0 {
				return &exitError{code: exitFailed}
			}
			return nil
		},
	}
}

func firstOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
