// Command kernosis detects kernel faults of a node with eBPF instead of log scraping, reports whether
// each is temporary or permanent, names the affected pod, process or device, and finds the cause.
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

// version and revision (the commit) are set by the linker.
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

func execute(ctx context.Context, args []string) int {
	cobra.EnableCommandSorting = false // newRoot adds commands in the order of their use
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
		{"look", "Inspect agent and node:", []*cobra.Command{newStatus(), newTop(), newWhy(), newFeatures(), newBundle()}},
		{"explain", "Find causes:", []*cobra.Command{newDiagnose(), newGraph()}},
		{"rules", "Rules:", []*cobra.Command{newRules(), newMute(), newLint(), newReplay()}},
		{"drills", "Drills:", []*cobra.Command{newDemo(), newInject()}},
		{"install", "Install, migrate, remove:", []*cobra.Command{newCRDs(), newConvert(), newUninstall()}},
		{"checks", "Check programs of node-problem-detector:", []*cobra.Command{newHealthChecker(), newLogCounter()}},
		{"other", "Other:", []*cobra.Command{newVersion()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.SetFlagErrorFunc(flagError)
	explainUsage(root)
	return root
}

func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return output.ExitOK
	}
	code := output.ExitInput
	if ee, ok := errors.AsType[*output.ExitError](err); ok {
		code = ee.Code
		err = ee.Err
	}
	if err != nil {
		fmt.Fprintln(stderr, "kernosis:", err)
	}
	return code
}

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
			return output.Failed(format.Write(w, b, func() error { _, err := io.WriteString(w, b.String()); return err }))
		},
	}
	format = output.Add(cmd)
	return cmd
}
