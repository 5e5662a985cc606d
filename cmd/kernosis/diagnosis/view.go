package diagnosis

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/artifact"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/graph/draw"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/worker"
)

// maxFacts bounds what a line shows of an operation's results, in bytes.
const maxFacts = 160

// View is a run to show.
type View struct {
	Dir        string
	Report     *runner.Report
	Graph      *graph.Graph
	Effects    []v1alpha1.Effect // by node
	Parameters map[string]string
	Set, Node  string // empty: unknown
	Artifacts  []artifact.Artifact
	Err        error // why the run can't be read; then only Report.ID is set
}

// Progress writes a line for each operation that has ended.
type Progress struct {
	w        io.Writer
	reported map[int]bool
	width    int
}

// NewProgress returns a Progress for a run of the graph.
func NewProgress(w io.Writer, g *graph.Graph) *Progress {
	return &Progress{w: w, reported: map[int]bool{}, width: longestOperation(g)}
}

// Changed writes the lines of newly ended operations. It must be called with each new state of the
// run, by one goroutine.
func (p *Progress) Changed(rep *runner.Report) {
	records := slices.Clone(rep.Records)
	slices.SortStableFunc(records, func(a, b runner.Record) int {
		if a.Start.IsZero() || b.Start.IsZero() { // skipped, because it follows a repair that was not made
			return cmp.Compare(unstarted(&a), unstarted(&b))
		}
		return a.Start.Compare(b.Start)
	})
	for i := range records {
		rec := &records[i]
		if p.reported[rec.ID] || rec.State == v1alpha1.ResultRunning {
			continue
		}
		p.reported[rec.ID] = true
		fmt.Fprintln(p.w, operationLine(rec, p.width))
	}
}

func unstarted(rec *runner.Record) int {
	if rec.Start.IsZero() {
		return 1
	}
	return 0
}

// longestOperation returns the width of the column of operations.
func longestOperation(g *graph.Graph) int {
	longest := 0
	for id := range g.Len() {
		longest = max(longest, len(g.Node(id).Operation))
	}
	return min(longest, 40)
}

// operationLine returns a line such as "  2  check-disk-stalled  no  2s  NoDiskStalled: …".
func operationLine(rec *runner.Record, width int) string {
	took := "-"
	if rec.Duration > 0 {
		took = display.Duration(rec.Duration)
	}
	text := Finding(rec)
	if rec.Attempts > 1 {
		text = fmt.Sprintf("(%d tries) %s", rec.Attempts, text)
	}
	return strings.TrimRight(fmt.Sprintf("%3d  %-*s  %-9s  %6s  %s", rec.ID, width, rec.Operation, StateWord(rec), took, text), " ")
}

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

// Write writes the summary, or the document if the format is JSON or YAML.
func (v *View) Write(w io.Writer, format *output.Format) error {
	return format.Write(w, v.document(), func() error {
		_, err := io.WriteString(w, "\n"+v.Summary())
		return err
	})
}

// Summary returns the outcome of a run: a line for each fact, which begins with a label.
func (v *View) Summary() string {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", label, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
	}
	rep := v.Report
	switch {
	case rep.Verdict != nil:
		line("VERDICT", "%s: %s", rep.Verdict.Reason, rep.Verdict.Message)
	case rep.Phase == v1alpha1.PhaseSucceeded:
		line("VERDICT", "none: no operation on the path checks for a cause")
	case rep.Phase == v1alpha1.PhaseFailed:
		line("VERDICT", "%s", v.NoVerdict())
	case rep.Waiting != nil:
		line("WAITS", "node %d: %s: %s", rep.Waiting.ID, rep.Waiting.Reason, rep.Waiting.Message)
	case rep.Phase == v1alpha1.PhaseRunning:
		line("OPEN", "running, or interrupted")
	default:
		line("VERDICT", "%s", strings.ToLower(string(rep.Phase))+": "+rep.Message)
	}
	if rep.Phase == v1alpha1.PhaseSucceeded {
		line("PATH", "%s", PathText(v.Graph, rep.Path))
	}
	for _, e := range rep.Excluded() {
		line("NOT", "%s: %s", e.Reason, e.Message)
	}
	for i := range rep.Records {
		switch rec := &rep.Records[i]; {
		case rec.State == v1alpha1.ResultFailed && v.Effects[rec.ID] == v1alpha1.EffectCheck:
			line("UNKNOWN", "%s failed: %s", rec.Operation, rec.Message)
		case rec.State == v1alpha1.ResultFailed || rec.State == v1alpha1.ResultUnknown:
			line(strings.ToUpper(string(rec.State)), "%s: %s", rec.Operation, rec.Message)
		case rec.State == v1alpha1.ResultWouldRun || rec.State == v1alpha1.ResultWithheld:
			line("WOULD RUN", "%s: %s", rec.Operation, rec.Message)
		case rec.Repairs && rec.State == v1alpha1.ResultSucceeded:
			line("DONE", "%s", rec.Operation)
		}
	}
	for _, a := range v.Artifacts {
		cut := ""
		if a.Truncated {
			cut = ", truncated: no room for the rest"
		}
		line("FILE", "%s (%s%s)", v.Path(&a), display.Bytes(a.Size), cut)
	}
	if rep.Unsaved != nil {
		line("UNSAVED", "%v", rep.Unsaved)
	}
	return b.String()
}

// NoVerdict returns why a failed run has no verdict.
func (v *View) NoVerdict() string {
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
func (v *View) Path(a *artifact.Artifact) string {
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

// Read reads a run. The error is fs.ErrNotExist if there is no run with that id.
func Read(dir, id string) (*View, error) {
	saved, err := runner.ReadSaved(worker.Checkpoints(dir), id)
	if err != nil {
		return nil, fmt.Errorf("show: %w", err)
	}
	v := &View{Dir: dir, Report: saved.Report, Graph: saved.Graph, Effects: saved.Effects, Parameters: saved.Parameters}
	if v.Artifacts, err = artifact.Read(worker.Artifacts(dir), id); err != nil {
		return nil, fmt.Errorf("show: %w", err)
	}
	return v, nil
}

// ReadAll reads the runs of folders, unreadable ones first, then the oldest first.
func ReadAll(all ...string) ([]*View, error) {
	var views []*View
	for _, dir := range all {
		ids, err := runner.SavedIDs(worker.Checkpoints(dir))
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			v, err := Read(dir, id)
			if err != nil {
				v = &View{Dir: dir, Report: &runner.Report{ID: id}, Err: err}
			}
			views = append(views, v)
		}
	}
	slices.SortStableFunc(views, func(a, b *View) int { return a.Report.Started.Compare(b.Report.Started) })
	return views, nil
}

// Drawing returns the graph of a run with the path taken.
func (v *View) Drawing(title string) *draw.Drawing {
	var status v1alpha1.DiagnosisStatus
	v.Report.Status(&status)
	return draw.Of(title, v.Graph, func(id int) v1alpha1.Effect { return v.Effects[id] }, &status)
}

// Result returns the result of a run in a few words.
func (v *View) Result() string {
	switch {
	case v.Report.Verdict != nil:
		return v.Report.Verdict.Reason
	case v.Report.Phase == v1alpha1.PhaseRunning:
		return "has not ended"
	}
	return strings.TrimSuffix(string(v.Report.Phase)+" ("+v.Report.Reason+")", " ()")
}
