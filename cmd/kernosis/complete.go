package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/cmd/kernosis/replay"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/resolve"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/worker"
)

// completeFirst completes the first argument of a command, without file names.
func completeFirst(names func() []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag completes the value of a flag, without file names.
func completeFlag(cmd *cobra.Command, flag string, names func() []string) {
	// It fails only if the flag does not exist.
	_ = cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return names(), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeSettings completes the values of enumerated settings that the command has.
func completeSettings(cmd *cobra.Command) {
	for flag, values := range map[string][]string{
		"log-level": {"debug", "info", "warn", "error"}, "probes": {agent.ProbesObserve, agent.ProbesOff}, "pods-from": {agent.PodsFromAPI, agent.PodsFromKubelet}, "output": {output.Text, output.JSON},
	} {
		if cmd.Flags().Lookup(flag) != nil {
			completeFlag(cmd, flag, func() []string { return values })
		}
	}
}

// ruleNames returns the names of the shipped rules and of the rules in a folder.
func ruleNames(dir string) []string {
	set, err := agent.LoadRules(dir)
	if err != nil {
		return nil
	}
	return set.Names()
}

// completeRule completes the rule of a mute. With --end it completes muted rules only.
func (f *muteFlags) completeRule() []string {
	if !f.end {
		set, err := f.ruleSet()
		if err != nil {
			return nil
		}
		return set.Names()
	}
	path, err := f.path()
	if err != nil {
		return nil
	}
	_, list, _ := readMutes(path) // an unreadable file has no names
	var muted []string
	for _, m := range list {
		muted = append(muted, m.Rule)
	}
	slices.Sort(muted)
	return slices.Compact(muted)
}

// completeWhere completes the fields of a rule's groupBy.
func (f *muteFlags) completeWhere(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	set, err := f.ruleSet()
	if err != nil || len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var fields []string
	if r, ok := set.Rule(args[0]); ok {
		for _, field := range r.GroupBy {
			fields = append(fields, field+"=")
		}
	}
	return fields, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func runNames(stateDir string) []string {
	var names []string
	for _, dir := range agent.RunsDirs(stateDir) {
		ids, _ := runner.SavedIDs(worker.Checkpoints(dir)) // an unreadable folder has no names
		names = append(names, ids...)
	}
	return names
}

// completeParameter completes the names of a set's parameters.
func (c *diagnoseRun) completeParameter(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	m, set, err := c.source.load(cmd, args)
	if err != nil || slices.Contains(c.source.files, "-") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	plan, err := resolve.Set(resolve.Of(m.Operations, catalog.All(operation.Host{})), set)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, name := range plan.Parameters() {
		names = append(names, name+"=")
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func formats() []string {
	var names []string
	for _, f := range replay.Formats() {
		names = append(names, string(f))
	}
	return names
}
