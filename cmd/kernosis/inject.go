package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
)

func newInject() *cobra.Command {
	var env inject.Env
	var pinRoot string
	cmd := &cobra.Command{
		Use:     "inject FAULT",
		Short:   "Cause a real, bounded fault that cleans up after itself, for a drill",
		Long:    "Provoke a real kernel fault in isolation (in a control group, network namespace or\nloop file made for it), heal it and clean up.\n\n" + faultList(),
		Example: "  sudo kernosis inject oom\n  sudo kernosis inject disk-error --dry-run",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("inject: want one of %s", strings.Join(faultNames(), ", "))
			}
			return nil
		},
		ValidArgs: faultNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, ok := inject.Find(args[0])
			if !ok {
				return fmt.Errorf("inject: unknown fault %q: want one of %s", args[0], strings.Join(faultNames(), ", "))
			}
			if err := f.CheckEnv(&env); err != nil {
				return err
			}
			env.Out = cmd.OutOrStdout()
			env.WaitTarget = waitTarget(pinRoot)
			_, err := f.Run(cmd.Context(), env)
			return output.Failed(err)
		},
	}
	fs := cmd.Flags()
	fs.DurationVar(&env.Duration, "duration", 0, "how long a state lasts before it is healed; 0: the fault's default")
	fs.IntVar(&env.Count, "count", 0, "`number` of times that an event happens; 0: the fault's default")
	fs.Uint64Var(&env.Memory, "memory", 0, "memory limit of the control group that runs out of memory, in `bytes`; 0: 32 MiB")
	fs.StringVar(&env.TargetsDir, "targets-dir", inject.DefaultTargetsDir, "`folder` from which a running kernosis reads probe targets")
	fs.StringVar(&env.StateDir, "state-dir", inject.DefaultStateDir, "`folder` of the records for cleaning up after a crash")
	fs.StringVar(&pinRoot, "pin-root", bpf.DefaultPinRoot, "`folder` of a running kernosis' pinned maps")
	fs.BoolVar(&env.DryRun, "dry-run", false, "print what would be done, and whether this machine supports it")
	return cmd
}

func faultNames() []string {
	var names []string
	for _, f := range inject.Faults() {
		names = append(names, f.Name)
	}
	return names
}

func faultList() string {
	var rows output.Rows
	for _, f := range inject.Faults() {
		rows.Add("  "+f.Name, f.Summary)
	}
	return "Faults:\n" + rows.String()
}

// watchPatience is how long a running agent may take to read a new target file: it waits until the
// folder no longer changes.
const watchPatience = 5 * time.Second

// waitTarget returns a function that waits until a running agent watches a
// target, as its pinned map shows.
func waitTarget(pinRoot string) func(context.Context, uint32, netip.AddrPort) error {
	return func(ctx context.Context, netns uint32, addr netip.AddrPort) error {
		var unread error
		isWatched := func(context.Context) (watched bool, _ error) {
			watched, unread = bpf.WatchedBy(pinRoot, netns, addr)
			return watched, nil
		}
		if err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, watchPatience, true, isWatched); err != nil {
			return errors.Join(fmt.Errorf("%s is not in the targets map below %s", addr, pinRoot), unread)
		}
		return nil
	}
}
