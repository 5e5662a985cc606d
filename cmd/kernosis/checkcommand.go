package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/process"
)

// Exit codes of a check program, as in node-problem-detector.
const (
	checkOK      = 0
	checkProblem = 1
	checkUnknown = 2
)

// Names by which kubectl runs a plugin, and asks it for shell completions.
const (
	pluginName   = "kubectl-kernosis"
	completeName = "kubectl_complete-kernosis"
)

// isPlugin reports whether this program runs as a kubectl plugin.
func isPlugin(args []string) bool { return len(args) > 0 && filepath.Base(args[0]) == pluginName }

// calledAs returns the arguments without the program's name, adding the command that the name
// implies: node-problem-detector's configurations name check programs by paths that may be links
// to kernosis, and kubectl asks a plugin for completions by another name.
func calledAs(args []string) []string {
	if len(args) == 0 {
		return nil
	}
	if name := filepath.Base(args[0]); name == "health-checker" || name == "log-counter" {
		return append([]string{name}, args[1:]...)
	} else if name == completeName {
		return append([]string{cobra.ShellCompRequestCmd}, args[1:]...)
	}
	return args[1:]
}

// newCheckCommand returns a command that is a check program. It prints its message to the standard
// output, including usage errors.
func newCheckCommand(use, short, long, example string, run func(*cobra.Command) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: example}
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return answer(cmd, checkUnknown, fmt.Sprintf("unexpected argument %q", args[0]))
		}
		return nil
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return answer(cmd, checkUnknown, err.Error()) })
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		err := run(cmd)
		if _, answered := errors.AsType[*output.ExitError](err); answered || err == nil {
			return err
		}
		return answer(cmd, checkUnknown, err.Error())
	}
	// node-problem-detector's programs accept the flags of its log library.
	fs := cmd.Flags()
	fs.StringP("v", "v", "", "")
	fs.String("vmodule", "", "")
	fs.Bool("logtostderr", true, "")
	for _, name := range []string{"v", "vmodule", "logtostderr"} {
		fs.Lookup(name).Hidden = true
		fs.Lookup(name).Usage = "accepted and not used"
	}
	return cmd
}

// answer prints a check program's message, and returns the error that carries its exit code.
func answer(cmd *cobra.Command, code int, text string) error {
	fmt.Fprintln(cmd.OutOrStdout(), text)
	if code == checkOK {
		return nil
	}
	return &output.ExitError{Code: code}
}

// program runs a program of the node and returns what it printed. After limit it is killed together
// with everything that it started.
func program(ctx context.Context, limit time.Duration, name string, args ...string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	p := process.Program{Path: path, Args: args, Timeout: limit, Env: plainEnviron()}
	o := p.Run(ctx)
	switch {
	case o.Err != nil:
		err = o.Err
	case !o.State.Success():
		err = errors.New(o.State.String())
	default:
		return strings.TrimSuffix(string(o.Stdout), "\n"), nil
	}
	return "", fmt.Errorf("%s: %w: %.500q", name, err, append(slices.Clip(o.Stdout), o.Stderr...))
}

// plainEnviron returns the environment changed for output that can be parsed: English texts, and
// times in UTC, because the abbreviation of another time zone does not give its offset.
func plainEnviron() []string { return append(os.Environ(), "LC_ALL=C", "TZ=UTC") }
