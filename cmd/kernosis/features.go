package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector"
	"github.com/kernosis/kernosis/collector/selfcheck"
)

func newFeatures() *cobra.Command {
	var output, hostRoot string
	cmd := &cobra.Command{
		Use:   "features",
		Short: "List which BPF programs attach on this kernel, which fall back, and why",
		Long: `Load and attach every BPF program for a moment (an agent may keep running) and
list for each hook which variant works on this kernel, and why a better one does
not. Then list what an agent with this process's permissions and paths would lack.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("output: %q is neither text nor json", output)
			}
			log := slog.New(slog.DiscardHandler)
			sources, err := collector.Open(collector.Config{HostRoot: hostRoot}, log)
			if err != nil {
				return failed(err)
			}
			defer func() { _ = sources.Close(true) }() // nothing is pinned: all goes with the process
			f := features{Programs: sources.Reports(), Lacks: featureLacks(hostRoot, sources)}
			if sources.Err() == nil {
				sources.AttachAll()
				f.Programs = sources.Reports()
			}
			if output == "json" {
				return failed(json.NewEncoder(cmd.OutOrStdout()).Encode(f))
			}
			return failed(writeFeatures(cmd.OutOrStdout(), f))
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "`text` or json")
	cmd.Flags().StringVar(&hostRoot, "host-root", "/", "where the host's /proc and /sys are")
	return cmd
}

// features is what this machine lets an agent do.
type features struct {
	Programs []bpf.VariantReport `json:"programs"`
	Lacks    []selfcheck.Lack    `json:"lacks"`
}

// featureLacks looks for what an agent of the default settings would lack.
func featureLacks(hostRoot string, sources *collector.Sources) []selfcheck.Lack {
	cfg := agentConfig{HostRoot: hostRoot}
	c := selfCheckConfig(cfg, sources)
	c.Logs, c.Diagnose = selfCheckLogs(cfg, nil), true
	if err := bpf.CheckPinRoot(bpf.DefaultPinRoot); err != nil {
		c.PinRoot, c.NoPins = bpf.DefaultPinRoot, err
	}
	lacks := selfcheck.New(c).Look()
	if lacks == nil {
		lacks = []selfcheck.Lack{} // in JSON a list too
	}
	return lacks
}

func writeFeatures(w io.Writer, f features) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "STEM\tHOOK\tPROGRAM\tSTATE\tWHY")
	for _, r := range f.Programs {
		why := r.Reason
		if why == "" && r.State == bpf.Unused {
			why = "a better variant serves the hook"
		}
		hook := r.Hook
		if r.Optional {
			hook += " (optional)"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", r.Stem, hook, r.Program, r.State, why)
	}
	if len(f.Lacks) > 0 {
		fmt.Fprintln(tw, "\nPART\tREASON\tLACKS\tNOT SEEN\tWHY")
	}
	for _, l := range f.Lacks {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", l.Part, l.Reason, l.Lacks, l.Unseen, l.Why)
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("write features: %w", err)
	}
	return nil
}
