package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/runner"
)

// progress writes a line for each operation that has ended.
type progress struct {
	w        io.Writer
	reported map[int]bool // by node
	width    int          // of the column of operations
}

func newProgress(w io.Writer, g *graph.Graph) *progress {
	longest := 0
	for id := range g.Len() {
		longest = max(longest, len(g.Node(id).Operation))
	}
	return &progress{w: w, reported: map[int]bool{}, width: min(longest, 40)}
}

// changed writes the lines of newly ended operations. It must be called with each new state of the
// run, by one goroutine.
func (p *progress) changed(rep *runner.Report) {
	records := slices.Clone(rep.Records)
	slices.SortStableFunc(records, func(a, b runner.Record) int {
		if a.Start.IsZero() != b.Start.IsZero() { // skipped, because it follows a repair that was not made
			return b.Start.Compare(a.Start)
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

// operationLine returns a line such as "  2  check-disk-stalled  no  2s  NoDiskStalled: …".
func operationLine(rec *runner.Record, width int) string {
	took := "-"
	if rec.Duration > 0 {
		took = display.Duration(rec.Duration)
	}
	text := agent.Finding(rec)
	if rec.Attempts > 1 {
		text = fmt.Sprintf("(%d tries) %s", rec.Attempts, text)
	}
	return strings.TrimRight(fmt.Sprintf("%3d  %-*s  %-9s  %6s  %s", rec.ID, width, rec.Operation, agent.StateWord(rec), took, text), " ")
}

// writeRun writes the summary, or the document if the format is JSON or YAML.
func writeRun(v *agent.Diagnosis, w io.Writer, format *output.Format) error {
	return format.Write(w, documentOfRun(v), func() error {
		_, err := io.WriteString(w, "\n"+summary(v))
		return err
	})
}

// summary returns the outcome of a run: a line for each fact, which begins with a label.
func summary(v *agent.Diagnosis) string {
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
		line("PATH", "%s", agent.PathText(v.Graph, rep.Path))
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

type runDocument struct {
	ID           string            `json:"id"`
	OperationSet string            `json:"operationSet,omitempty"`
	Node         string            `json:"node,omitempty"`
	Parameters   map[string]string `json:"parameters,omitempty"`
	// Reason and Message are those of the condition Complete; empty while the run continues.
	Reason   string          `json:"reason,omitempty"`
	Message  string          `json:"message,omitempty"`
	Excluded []excludedCause `json:"excluded,omitempty"`
	Files    []runFile       `json:"files,omitempty"`
	Graph    []runNode       `json:"graph"`
	// Status is the status as in a Diagnosis: phase, verdict, paths, results.
	Status v1alpha1.DiagnosisStatus `json:"status"`
}

type excludedCause struct {
	ID        int    `json:"id"`
	Operation string `json:"operation"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
}

type runFile struct {
	Path      string `json:"path"`
	Size      int64  `json:"size"`
	SHA256    string `json:"sha256,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
}

type runNode struct {
	ID          int    `json:"id"`
	Operation   string `json:"operation,omitempty"`
	To          []int  `json:"to,omitempty"`
	Dependences []int  `json:"dependences,omitempty"`
}

func documentOfRun(v *agent.Diagnosis) *runDocument {
	d := &runDocument{
		ID: v.Report.ID, OperationSet: v.Set, Node: v.Node, Parameters: v.Parameters, Reason: v.Report.Reason, Message: v.Report.Message,
	}
	v.Report.Status(&d.Status)
	for _, e := range v.Report.Excluded() {
		d.Excluded = append(d.Excluded, excludedCause{e.ID, e.Operation, e.Reason, e.Message})
	}
	for i := range v.Artifacts {
		a := &v.Artifacts[i]
		d.Files = append(d.Files, runFile{v.Path(a), a.Size, a.SHA256, a.Truncated})
	}
	for id := range v.Graph.Len() {
		n := v.Graph.Node(id)
		d.Graph = append(d.Graph, runNode{n.ID, n.Operation, n.To, n.Dependences})
	}
	return d
}

// documentsOfRuns returns the documents of runs. An unreadable run has only its ID and the error.
func documentsOfRuns(views []*agent.Diagnosis) []any {
	list := []any{} // encode an empty list as []
	for _, v := range views {
		if v.Err != nil {
			list = append(list, map[string]string{"id": v.Report.ID, "error": v.Err.Error()})
			continue
		}
		list = append(list, documentOfRun(v))
	}
	return list
}
