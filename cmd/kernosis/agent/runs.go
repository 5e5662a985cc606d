package agent

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/artifact"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/graph/draw"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/worker"
)

const runsFolder = "diagnose"

// RunsDir returns the folder of the agent's Diagnoses.
func RunsDir(stateDir string) string { return filepath.Join(stateDir, runsFolder) }

// runsByHandDir returns the folder for Diagnoses that a person starts while an agent has locked the
// other.
func runsByHandDir(stateDir string) string { return filepath.Join(RunsDir(stateDir), "by-hand") }

// RunsDirs returns all folders of Diagnoses in a state folder.
func RunsDirs(stateDir string) []string { return []string{RunsDir(stateDir), runsByHandDir(stateDir)} }

// Diagnosis is a run of a Diagnosis, as read from the state folder.
type Diagnosis struct {
	Dir        string
	Report     *runner.Report
	Graph      *graph.Graph
	Effects    []v1alpha1.Effect // by node
	Parameters map[string]string
	Set, Node  string // empty: unknown
	Artifacts  []artifact.Artifact
	Err        error // why the run can't be read; then only Report.ID is set
}

// ReadDiagnosis reads a run. The error is fs.ErrNotExist if there is no run with that id.
func ReadDiagnosis(dir, id string) (*Diagnosis, error) {
	saved, err := runner.ReadSaved(worker.Checkpoints(dir), id)
	if err != nil {
		return nil, fmt.Errorf("show: %w", err)
	}
	v := &Diagnosis{Dir: dir, Report: saved.Report, Graph: saved.Graph, Effects: saved.Effects, Parameters: saved.Parameters}
	if v.Artifacts, err = artifact.Read(worker.Artifacts(dir), id); err != nil {
		return nil, fmt.Errorf("show: %w", err)
	}
	return v, nil
}

// ReadDiagnoses reads the runs of folders, unreadable ones first, then the oldest first.
func ReadDiagnoses(all ...string) ([]*Diagnosis, error) {
	var views []*Diagnosis
	for _, dir := range all {
		ids, err := runner.SavedIDs(worker.Checkpoints(dir))
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			v, err := ReadDiagnosis(dir, id)
			if err != nil {
				v = &Diagnosis{Dir: dir, Report: &runner.Report{ID: id}, Err: err}
			}
			views = append(views, v)
		}
	}
	slices.SortStableFunc(views, func(a, b *Diagnosis) int { return a.Report.Started.Compare(b.Report.Started) })
	return views, nil
}

// Drawing returns the graph of a run with the path taken.
func (v *Diagnosis) Drawing(title string) *draw.Drawing {
	var status v1alpha1.DiagnosisStatus
	v.Report.Status(&status)
	return draw.Of(title, v.Graph, func(id int) v1alpha1.Effect { return v.Effects[id] }, &status)
}

// NoVerdict returns why a failed run has no verdict.
func (v *Diagnosis) NoVerdict() string {
	if v.Report.Reason != v1alpha1.ReasonNoPathSucceeded {
		return "none: " + v.Report.Reason + ": " + v.Report.Message
	}
	for i := range v.Report.Records {
		if rec := &v.Report.Records[i]; rec.State == v1alpha1.ResultFailed && v.Effects[rec.ID] == v1alpha1.EffectCheck {
			return "none: no cause found, but some could not be checked"
		}
	}
	return "none: no checked cause applies"
}

// Path returns the path of a file that the run kept.
func (v *Diagnosis) Path(a *artifact.Artifact) string {
	return a.Path(worker.Artifacts(v.Dir), v.Report.ID)
}

// PathText returns a path such as "1 blocked-stacks → 2 check-disk-stalled".
func PathText(g *graph.Graph, path []int) string {
	var parts []string
	for _, id := range path {
		parts = append(parts, fmt.Sprintf("%d %s", id, g.Node(id).Operation))
	}
	return cmp.Or(strings.Join(parts, " → "), "none")
}

// maxFacts bounds the results of an operation that a line shows, in bytes.
const maxFacts = 160

// Finding returns what an operation found, in one line.
func Finding(rec *runner.Record) string {
	switch {
	case rec.Reason != "" && rec.Reason != "Failed":
		return strings.TrimSuffix(rec.Reason+": "+rec.Message, ": ")
	case rec.Message != "":
		return rec.Message
	}
	return facts(rec.Results)
}

// StateWord returns the state of an operation in a word. For a check it is the answer, yes or no.
func StateWord(rec *runner.Record) string {
	switch rec.State {
	case v1alpha1.ResultSucceeded:
		if rec.Verdict != nil {
			return "yes"
		}
		return "done"
	case v1alpha1.ResultRefuted:
		return "no"
	case v1alpha1.ResultWouldRun:
		return "would run"
	case v1alpha1.ResultAwaitingApproval:
		return "waits"
	}
	return strings.ToLower(string(rec.State))
}

// facts returns as many results as fit on a line.
func facts(results map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(results)) {
		value := results[key]
		if strings.ContainsAny(value, " \n\t\"") || value == "" {
			value = strconv.Quote(value)
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(key + "=" + value)
	}
	return display.Cut(b.String(), maxFacts)
}
