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
)

func newFeatures() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "features",
		Short: "Show which programs attach on this kernel, and why the better ones do not",
		Long: `Load and attach every program for a moment, beside an agent that may be
running, and show for each stem and hook which variant works here and why the
better ones do not.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("output: %q is neither text nor json", output)
			}
			log := slog.New(slog.DiscardHandler)
			sources, err := collector.Open(collector.Config{HostRoot: "/"}, log)
			if err != nil {
				return failed(err)
			}
			defer func() { _ = sources.Close(true) }() // nothing is pinned: all goes with the process
			if err := sources.Err(); err != nil {
				return failed(err)
			}
			sources.AttachAll()
			reports := sources.Reports()
			if output == "json" {
				return failed(json.NewEncoder(cmd.OutOrStdout()).Encode(reports))
			}
			return failed(writeFeatures(cmd.OutOrStdout(), reports))
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "`text` or json")
	return cmd
}

func writeFeatures(w io.Writer, reports []bpf.VariantReport) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "STEM\tHOOK\tPROGRAM\tSTATE\tWHY")
	for _, r := range reports {
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
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("write features: %w", err)
	}
	return nil
}
