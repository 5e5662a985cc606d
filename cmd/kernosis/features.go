package main

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector"
	"github.com/kernosis/kernosis/collector/selfcheck"
)

func newFeatures() *cobra.Command {
	var hostRoot string
	var format *output.Format
	cmd := &cobra.Command{
		Use:   "features",
		Short: "List which BPF programs attach on this kernel, which fall back, and why",
		Long: `Load and attach every BPF program briefly (an agent may keep running) and
list for each hook which variant works on this kernel, and why a better one does
not. Then list what an agent with this process's permissions and paths would lack.`,
		Example: `  sudo kernosis features
  kubectl -n kernosis exec POD -- kernosis features   # with the agent's permissions`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := readFeatures(hostRoot)
			if err != nil {
				return output.Failed(err)
			}
			w := cmd.OutOrStdout()
			return output.Failed(format.Write(w, f, func() error { return f.write(w, format.Is(output.Wide), output.ColoursOf(w)) }))
		},
	}
	format = output.Add(cmd)
	cmd.Flags().StringVar(&hostRoot, "host-root", "/", "`folder` of the host's /proc and /sys")
	return cmd
}

// features is what an agent can do on this machine.
type features struct {
	Programs []bpf.VariantReport `json:"programs"`
	Lacks    []selfcheck.Lack    `json:"lacks"`
}

// readFeatures loads and attaches all programs briefly, and reports the results.
func readFeatures(hostRoot string) (*features, error) {
	sources, err := collector.Open(collector.Config{HostRoot: hostRoot}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer func() { _ = sources.Close(true) }() // nothing is pinned, so all is released with the process
	f := &features{Programs: sources.Reports(), Lacks: agent.FeatureLacks(hostRoot, sources)}
	if sources.Err() == nil {
		sources.AttachAll()
		f.Programs = sources.Reports()
	}
	return f, nil
}

// write writes tables; all: also which programs stay attached after the agent ends.
func (f *features) write(w io.Writer, all bool, paint output.Colours) error {
	programs := &output.Rows{}
	head := []string{"STEM", "HOOK", "PROGRAM", "STATE", "WHY"}
	if all {
		head = slices.Insert(head, 4, "PINNED")
	}
	programs.Add(head...)
	for _, r := range f.Programs {
		why := r.Reason
		if why == "" && r.State == bpf.Unused {
			why = "a better variant serves the hook"
		}
		hook := r.Hook
		if r.Optional {
			hook += " (optional)"
		}
		state := string(r.State)
		if r.State == bpf.Failed || r.State == bpf.Forbidden {
			state = paint.Doubtful(state)
		}
		row := []string{r.Stem, hook, r.Program, state, why}
		if all {
			row = slices.Insert(row, 4, strconv.FormatBool(r.Pinned))
		}
		programs.Add(row...)
	}
	if err := programs.Write(w); err != nil || len(f.Lacks) == 0 {
		return err
	}
	lacks := &output.Rows{}
	lacks.Add("PART", "REASON", "LACKS", "NOT SEEN", "WHY")
	for _, l := range f.Lacks {
		lacks.Add(l.Part, string(l.Reason), paint.Doubtful(l.Lacks), l.Unseen, l.Why)
	}
	fmt.Fprintln(w)
	return lacks.Write(w)
}
