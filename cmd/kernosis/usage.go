package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kernosis/kernosis/collector/document"
)

// unknownCommand returns an error if the arguments name an unknown command: of the root, of a group
// such as "rules", or after "help". Cobra would print help for most of them instead.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) > 0 && args[0] == "help" {
		args = args[1:]
	}
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return nil // a completion request of a shell
	}
	cmd, rest, err := root.Find(args)
	if err != nil {
		cmd, rest = root, args
	}
	if !cmd.HasSubCommands() {
		return nil
	}
	i := slices.IndexFunc(rest, func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	if i < 0 {
		return nil
	}
	hint := "see " + cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = 2
	if like := cmd.SuggestionsFor(rest[i]); len(like) > 0 {
		hint = "did you mean " + strings.Join(like, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q for %q: %s", rest[i], cmd.CommandPath(), hint)
}

// explainUsage makes argument errors of all commands below root say what to write instead.
func explainUsage(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		explainUsage(cmd)
		if check := cmd.Args; check != nil {
			cmd.Args = func(cmd *cobra.Command, args []string) error { return argumentError(cmd, args, check(cmd, args)) }
		}
	}
}

func argumentError(cmd *cobra.Command, args []string, err error) error {
	if err == nil || !strings.Contains(err.Error(), "arg(s)") {
		return err // cobra's other errors name the argument
	}
	example, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
	if example != "" {
		example = "\nexample: " + example
	}
	return fmt.Errorf("%s: wrong number of arguments: %d\nusage: %s%s", cmd.CommandPath(), len(args), cmd.UseLine(), example)
}

func flagError(cmd *cobra.Command, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		flag := invalid.GetFlag()
		var want string
		switch flag.Value.Type() {
		case "duration":
			want = "want a duration such as 30s, 5m or 1h30m"
		case "int", "int32", "int64", "uint", "uint16", "uint32", "uint64":
			want = "want a whole number"
		case "float32", "float64":
			want = "want a number"
		case "bool":
			want = "want true or false"
		default:
			return fmt.Errorf("--%s: %q: %w", flag.Name, invalid.GetValue(), invalid.Unwrap())
		}
		return fmt.Errorf("--%s: %q: %s", flag.Name, invalid.GetValue(), want)
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				known = append(known, f.Name)
			}
		})
		return fmt.Errorf("%w%s", err, document.Suggest(unknown.GetSpecifiedName(), known))
	}
	return err
}
