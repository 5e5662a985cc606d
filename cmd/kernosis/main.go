// Command kernosis detects faults of a node's kernel where the kernel decides
// them, reports whether each is temporary or permanent, and says who was hit and
// why.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
)

// version and revision, the commit, are set by the linker.
//
//nolint:gochecknoglobals // the linker needs variables
var (
	version  = "dev"
	revision = ""
)

func main() {
	if inject.RunChild(os.Args) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(execute(ctx, calledAs(os.Args)))
}

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // the work was tried and did not succeed
	exitInput  = 2 // bad usage, configuration, rules
	exitOpen   = 3 // the work has no outcome: it was interrupted, waits, or does not know
)

// exitError carries an exit code other than exitInput through cobra.
type exitError struct {
	code int
	err  error // nil: already printed
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// failed marks an error of the work, not of the input.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: exitFailed, err: err}
}

func execute(ctx context.Context, args []string) int {
	cobra.EnableCommandSorting = false // the order of newRoot is the order of use
	root := newRoot()
	root.SetArgs(args)
	if isPlugin(os.Args) {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl kernosis"}
	}
	if err := unknownCommand(root, args); err != nil {
		return exitCode(err, os.Stderr)
	}
	return exitCode(root.ExecuteContext(ctx), os.Stderr)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "kernosis",
		Short:         "Kernel fault detection and diagnosis for nodes",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"detect", "Detect faults:", []*cobra.Command{newRun(), newAgentCommand(), newController(), newConfig()}},
		{"look", "See how it does:", []*cobra.Command{newStatus(), newTop(), newWhy(), newFeatures(), newBundle()}},
		{"explain", "Find causes:", []*cobra.Command{newDiagnose(), newGraph()}},
		{"rules", "Rules:", []*cobra.Command{newRules(), newMute(), newLint(), newReplay()}},
		{"drills", "Drills:", []*cobra.Command{newDemo(), newInject()}},
		{"install", "Install, migrate, remove:", []*cobra.Command{newCRDs(), newConvert(), newUninstall()}},
		{"checks", "Check programs, as node-problem-detector has them:", []*cobra.Command{newHealthChecker(), newLogCounter()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.AddGroup(&cobra.Group{ID: "other", Title: "Other:"})
	v := newVersion()
	v.GroupID = "other"
	root.AddCommand(v)
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.SetFlagErrorFunc(flagError)
	explainUsage(root)
	return root
}

// exitCode prints an error and returns the code of the process.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return exitOK
	}
	code := exitInput
	if ee, ok := errors.AsType[*exitError](err); ok {
		code = ee.code
		err = ee.err
	}
	if err != nil {
		fmt.Fprintln(stderr, "kernosis:", err)
	}
	return code
}

// build says what this program was built from.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	return build{version, cmp.Or(revision, "unknown"), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
}

func (b build) String() string {
	return fmt.Sprintf("kernosis %s\nrevision %s\ngo       %s\nplatform %s\n", b.Version, b.Revision, b.Go, b.Platform)
}

func newVersion() *cobra.Command {
	var format *output.Format
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print version, commit, compiler and platform",
		Example: "  kernosis version -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w, b := cmd.OutOrStdout(), thisBuild()
			return failed(format.Write(w, b, func() error {
				fmt.Fprint(w, b)
				return nil
			}))
		},
	}
	format = output.Add(cmd)
	return cmd
}
