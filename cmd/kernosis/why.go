package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/config"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/cmd/kernosis/status"
	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/diagnose/why"
	whycluster "github.com/kernosis/kernosis/diagnose/why/cluster"
	"github.com/kernosis/kernosis/docs/problems"
)

type whyFlags struct {
	stateDir, journal, container string
	format                       *output.Format
	agentNamespaces              []string
	since                        time.Duration
	kube                         *kubeFlagSet
}

func newWhy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why",
		Short: "Explain why a pod or node is unhealthy: causes, evidence, what is excluded, what to do",
		Long: `Explain why a pod or node is unhealthy, from this node's journal, from the API server with
your own permissions, or from both: causes and their evidence, a timeline, what is excluded,
and what to do. docs/why.md explains the output.

Exit code: 0 a cause was found; 1 healthy; 2 bad usage, or nothing can be read; 3 no cause
is known and some sources could not be read.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newWhyPod(), newWhyNode())
	return cmd
}

func newWhyPod() *cobra.Command {
	f := &whyFlags{}
	cmd := &cobra.Command{
		Use:   "pod [NAMESPACE/]NAME",
		Short: "Explain why a pod is unhealthy, restarts, or fails its probes",
		Long: `Explain why a pod is unhealthy, restarts, or fails its probes. The default namespace comes from
-n, then the kubeconfig's. A journal identifies pods by UID, which may be given instead
of the name; it has the names only of pods whose probes failed.`,
		Example: `  kernosis why pod shop/web-1
  kubectl kernosis why pod -n shop web-1 -c app
  kernosis why pod 4a1f7c52-8f1e-4d0c-9a55-0d6f2f6b1c11 --journal /var/lib/kernosis`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			s := why.Subject{Kind: why.KindPod, Container: f.container}
			namespace, name, both := strings.Cut(strings.TrimPrefix(args[0], "pod/"), "/")
			if both {
				s.Namespace, s.Name = namespace, name
			} else {
				s.Name = namespace
			}
			if s.Name == "" || both && s.Namespace == "" {
				return fmt.Errorf("pod %q: want NAMESPACE/NAME or NAME", args[0])
			}
			return f.run(cmd, s)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVarP(&f.container, "container", "c", "", "only this `container`")
	return cmd
}

func newWhyNode() *cobra.Command {
	f := &whyFlags{}
	cmd := &cobra.Command{
		Use:   "node [NAME]",
		Short: "Explain what is wrong with a node, what is not monitored, and which repairs are held back",
		Long: `Explain what is wrong with a node: conditions that are True or Unknown and their causes,
recent problems and diagnoses, sources that are blind, and repairs that are held back. The
default is this node.`,
		Example: `  kernosis why node
  kubectl kernosis why node worker-7 --since 24h`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: f.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			s := why.Subject{Kind: why.KindNode}
			if len(args) == 1 {
				s.Name = strings.TrimPrefix(args[0], "node/")
			}
			return f.run(cmd, s)
		},
	}
	f.add(cmd)
	return cmd
}

func (f *whyFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.stateDir, "state-dir", "/var/lib/kernosis", "`folder` of this node's agent, with its journal and diagnoses")
	fs.StringVar(&f.journal, "journal", "", "read only this journal (its `folder`, or the state folder above it) and, with --kubeconfig or --context, the API server")
	f.format = output.Add(cmd)
	fs.DurationVar(&f.since, "since", time.Hour, "how far back to include what has ended")
	fs.StringSliceVar(&f.agentNamespaces, "agent-namespace", []string{"kernosis", "kernosis-system", "kube-system"}, "`namespaces` with agents, their Leases and Diagnoses")
	f.kube = newKubeFlagSet(fs)
}

func (f *whyFlags) run(cmd *cobra.Command, s why.Subject) error {
	if f.since < time.Minute {
		return fmt.Errorf("since %v: want at least 1m", f.since)
	}
	in, err := f.read(cmd.Context(), s)
	if err != nil {
		return err
	}
	in.Advice = problems.Advice
	a := why.Build(in)
	if err := f.write(cmd.OutOrStdout(), a); err != nil {
		return output.Failed(err)
	}
	switch a.Outcome {
	case why.Healthy:
		return &output.ExitError{Code: output.ExitFailed}
	case why.Unsure:
		return &output.ExitError{Code: output.ExitOpen}
	}
	return nil
}

func (f *whyFlags) write(w io.Writer, a *why.Answer) error {
	paint := output.ColoursOf(w)
	label := func(label string) string {
		switch label {
		case "CAUSE":
			return paint.Bad(label)
		case "BLIND", "UNREAD":
			return paint.Doubtful(label)
		}
		return label
	}
	return f.format.Write(w, a, func() error { return a.WriteText(w, why.View{Cells: cells(w, f.format), Label: label}) })
}

// terminalWidth returns the width of the terminal w, or 0 if w is not a terminal.
func terminalWidth(w io.Writer) int {
	screen := output.Terminal(w)
	if screen == nil {
		return 0
	}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
		return columns
	}
	columns, _, err := term.GetSize(int(screen.Fd())) //nolint:gosec // a file's descriptor
	if err != nil {
		return 0
	}
	return columns
}

// read reads all available sources, the API server first, because it knows UIDs and nodes.
func (f *whyFlags) read(ctx context.Context, s why.Subject) (why.Input, error) {
	now := time.Now()
	var reads bounded.Calls
	to, apiErr := f.server(&reads, &s)
	var fromAPI *why.Input
	if to != nil {
		in, err := whycluster.Read(ctx, whycluster.Config{REST: to, Subject: s, Namespaces: f.agentNamespaces, Now: now, Since: f.since})
		if apiErr = err; err == nil {
			fromAPI, s = &in, in.Subject
		}
	}
	known := fromAPI != nil
	in, journalErr := status.ReadFolder(ctx, &reads, agent.StateWithin, cmp.Or(f.journal, f.stateDir), func(step func() error) (*why.Input, error) {
		return f.local(s, now, known, step)
	})
	if errors.Is(apiErr, config.ErrNoCluster) {
		apiErr = nil
	}
	if errors.Is(journalErr, errNoJournal) {
		journalErr = nil
	}
	switch {
	case fromAPI != nil && in != nil:
		return why.Merge(*in, *fromAPI), nil
	case fromAPI != nil:
		if journalErr != nil {
			fromAPI.Unread = append(fromAPI.Unread, why.Unread{What: "journal", Why: journalErr.Error()})
		}
		return *fromAPI, nil
	case in != nil:
		if apiErr != nil {
			in.Unread = append(in.Unread, why.Unread{What: "API server", Why: apiErr.Error()})
		}
		return *in, nil
	}
	if err := errors.Join(apiErr, journalErr); err != nil {
		return why.Input{}, fmt.Errorf("why: %w", err)
	}
	return why.Input{}, fmt.Errorf("why: nothing to read: no journal below %s (--state-dir, --journal), and no kubeconfig (--kubeconfig, --context)", f.stateDir)
}
