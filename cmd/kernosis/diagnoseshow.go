package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph/draw"
)

func newDiagnoseShow() *cobra.Command {
	var stateDir string
	var format *output.Format
	cmd := &cobra.Command{
		Use:   "show [RUN]",
		Short: "List past runs, or show one: what ran, what failed, verdict, files",
		Long: `List the runs in the state folder, the newest last; or show one: each operation and its
result, the verdict, excluded causes, files, and the graph with the path taken.

Exit code: 0 shown; 2 there is no such run.`,
		Example: `  kernosis diagnose show
  kernosis diagnose show disk-error-20260214-100005-4f1c2a -o svg`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeFirst(func() []string { return runNames(stateDir) }),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				v, err := findDiagnosis(stateDir, args[0])
				if err != nil {
					return err
				}
				return output.Failed(showDiagnosis(cmd.OutOrStdout(), v, format))
			}
			views, err := agent.ReadDiagnoses(agent.RunsDirs(stateDir)...)
			if err != nil {
				return err
			}
			if slices.Contains(graphOutputs(), format.String()) {
				return fmt.Errorf("--output: %q needs a RUN", format)
			}
			w := cmd.OutOrStdout()
			return output.Failed(format.Write(w, documentsOfRuns(views), func() error { return listDiagnoses(w, views, format.Is(output.Wide)) }))
		},
	}
	format = output.Add(cmd, graphOutputs()...)
	stateDirFlag(cmd.Flags(), &stateDir)
	return cmd
}

// findDiagnosis reads a run from the state folder. It searches all folders of runs.
func findDiagnosis(stateDir, id string) (*agent.Diagnosis, error) {
	for _, dir := range agent.RunsDirs(stateDir) {
		if v, err := agent.ReadDiagnosis(dir, id); !errors.Is(err, fs.ErrNotExist) {
			return v, err
		}
	}
	return nil, fmt.Errorf("show: no run %.140q in %s%s", id, agent.RunsDir(stateDir), document.Suggest(id, runNames(stateDir)))
}

func showDiagnosis(w io.Writer, v *agent.Diagnosis, format *output.Format) error {
	switch {
	case slices.Contains(graphOutputs(), format.String()):
		return writeGraph(w, v.Drawing(v.Report.ID), format)
	case !format.ForPeople():
		return writeRun(v, w, format)
	}
	rep := v.Report
	took := "has not ended"
	if !rep.Ended.IsZero() {
		took = "took " + display.Duration(rep.Ended.Sub(rep.Started))
	}
	fmt.Fprintf(w, "run %s, started %s, %s\nparameters: %s\n", rep.ID, rep.Started.Format(time.DateTime), took, parameterText(v.Parameters))
	newProgress(w, v.Graph).changed(rep)
	fmt.Fprintf(w, "\n%s\n", summary(v))
	_, err := io.WriteString(w, draw.Text(v.Drawing(v.Report.ID)))
	return err
}

// listDiagnoses writes a table of runs; all: also their parameters.
func listDiagnoses(w io.Writer, views []*agent.Diagnosis, all bool) error {
	if len(views) == 0 {
		_, err := io.WriteString(w, "no runs; start one with kernosis diagnose run\n")
		return err
	}
	rows := &output.Rows{}
	if !all {
		rows.Most = 5
	}
	rows.Add("RUN", "STARTED", "TOOK", "FILES", "RESULT", "PARAMETERS")
	for _, v := range views {
		if v.Err != nil {
			rows.Add(v.Report.ID, "-", "-", "-", v.Err.Error())
			continue
		}
		took := "-"
		if !v.Report.Ended.IsZero() {
			took = display.Duration(v.Report.Ended.Sub(v.Report.Started))
		}
		rows.Add(v.Report.ID, v.Report.Started.Format(time.DateTime), took, strconv.Itoa(len(v.Artifacts)),
			resultText(v), parameterText(v.Parameters))
	}
	return rows.Write(w)
}

// resultText returns the result of a run in a few words.
func resultText(v *agent.Diagnosis) string {
	switch {
	case v.Report.Verdict != nil:
		return v.Report.Verdict.Reason
	case v.Report.Phase == v1alpha1.PhaseRunning:
		return "has not ended"
	}
	return strings.TrimSuffix(string(v.Report.Phase)+" ("+v.Report.Reason+")", " ()")
}
