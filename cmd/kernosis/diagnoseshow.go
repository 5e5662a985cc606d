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

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/artifact"
	"github.com/kernosis/kernosis/diagnose/graph/draw"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/worker"
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
				return failed(v.show(cmd.OutOrStdout(), format))
			}
			views, err := readDiagnoses(allDirs(stateDir)...)
			if err != nil {
				return err
			}
			if slices.Contains(graphOutputs(), format.String()) {
				return fmt.Errorf("--output: %q: name a run", format)
			}
			w := cmd.OutOrStdout()
			return failed(format.Write(w, documents(views), func() error { return listDiagnoses(w, views, format.Is(output.Wide)) }))
		},
	}
	format = output.Add(cmd, graphOutputs()...)
	stateDirFlag(cmd.Flags(), &stateDir)
	return cmd
}

// findDiagnosis reads a run of the state folder, wherever it is.
func findDiagnosis(stateDir, id string) (*diagnosisView, error) {
	for _, dir := range allDirs(stateDir) {
		if v, err := readDiagnosis(dir, id); !errors.Is(err, fs.ErrNotExist) {
			return v, err
		}
	}
	return nil, fmt.Errorf("show: no run %.140q in %s%s", id, dirOf(stateDir), document.Suggest(id, runNames(stateDir)))
}

func readDiagnosis(dir, id string) (*diagnosisView, error) {
	saved, err := runner.ReadSaved(worker.Checkpoints(dir), id)
	if err != nil {
		return nil, fmt.Errorf("show: %w", err)
	}
	v := &diagnosisView{Dir: dir, Report: saved.Report, Graph: saved.Graph, Effects: saved.Effects, Parameters: saved.Parameters}
	if v.Artifacts, err = artifact.Read(worker.Artifacts(dir), id); err != nil {
		return nil, fmt.Errorf("show: %w", err)
	}
	return v, nil
}

// readDiagnoses reads all runs, the oldest first. Those that can't be read are first.
func readDiagnoses(all ...string) ([]*diagnosisView, error) {
	var views []*diagnosisView
	for _, dir := range all {
		ids, err := runner.SavedIDs(worker.Checkpoints(dir))
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			v, err := readDiagnosis(dir, id)
			if err != nil {
				v = &diagnosisView{Dir: dir, Report: &runner.Report{ID: id}, Err: err}
			}
			views = append(views, v)
		}
	}
	slices.SortStableFunc(views, func(a, b *diagnosisView) int { return a.Report.Started.Compare(b.Report.Started) })
	return views, nil
}

func (v *diagnosisView) show(w io.Writer, format *output.Format) error {
	switch {
	case slices.Contains(graphOutputs(), format.String()):
		return writeGraph(w, v.drawing(v.Report.ID), format)
	case !format.ForPeople():
		return v.write(w, format)
	}
	rep := v.Report
	took := "has not ended"
	if !rep.Ended.IsZero() {
		took = "took " + display.Duration(rep.Ended.Sub(rep.Started))
	}
	fmt.Fprintf(w, "run %s, begun %s, %s\nparameters: %s\n", rep.ID, rep.Started.Format(time.DateTime), took, parameterText(v.Parameters))
	(&progress{w: w, reported: map[int]bool{}, width: longestOperation(v.Graph)}).changed(rep)
	fmt.Fprintf(w, "\n%s\n", v.summary())
	_, err := io.WriteString(w, draw.Text(v.drawing(v.Report.ID)))
	return err
}

// drawing is the graph of a run with the path taken.
func (v *diagnosisView) drawing(title string) *draw.Drawing {
	var status v1alpha1.DiagnosisStatus
	v.Report.Status(&status)
	return runner.Drawing(title, v.Graph, func(id int) v1alpha1.Effect { return v.Effects[id] }, &status)
}

// listDiagnoses writes a table of runs; all: also what they were run with.
func listDiagnoses(w io.Writer, views []*diagnosisView, all bool) error {
	if len(views) == 0 {
		_, err := io.WriteString(w, "no runs; kernosis diagnose run begins one\n")
		return err
	}
	rows := &output.Rows{}
	head := []string{"RUN", "BEGUN", "TOOK", "FILES", "RESULT"}
	if all {
		head = append(head, "PARAMETERS")
	}
	rows.Add(head...)
	for _, v := range views {
		if v.Err != nil {
			rows.Add(v.Report.ID, "-", "-", "-", v.Err.Error())
			continue
		}
		took := "-"
		if !v.Report.Ended.IsZero() {
			took = display.Duration(v.Report.Ended.Sub(v.Report.Started))
		}
		row := []string{v.Report.ID, v.Report.Started.Format(time.DateTime), took, strconv.Itoa(len(v.Artifacts)), v.result()}
		if all {
			row = append(row, parameterText(v.Parameters))
		}
		rows.Add(row...)
	}
	return rows.Write(w)
}

// result is a run in a few words.
func (v *diagnosisView) result() string {
	switch {
	case v.Report.Verdict != nil:
		return v.Report.Verdict.Reason
	case v.Report.Phase == v1alpha1.PhaseRunning:
		return "has not ended"
	}
	return strings.TrimSuffix(string(v.Report.Phase)+" ("+v.Report.Reason+")", " ()")
}
