package page

import (
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

// Diagnosis is a Diagnosis as the page shows it.
type Diagnosis struct {
	ID   string // of the run
	Name string
	// Trigger is what created it; empty if a person did.
	Trigger, OperationSet, Subject string
	Phase                          string
	// Outcome is one word; empty if Cause or Phase says it.
	Outcome        string
	Started, Ended time.Time // Ended is zero while it runs
	// Cause is the verdict. If it is nil, Message says why there is none.
	Cause    *Cause
	Message  string
	Excluded []Cause
	Steps    []Step
	Path     string // the path on which it ended
	Repairs  []string
	Files    []string
	// Graph reports whether the run has a drawing.
	Graph bool
}

// Cause is a cause as one word and as a sentence.
type Cause struct{ Reason, Message string }

// Step is the result of one node of the graph.
type Step struct {
	ID                int
	Operation, Effect string
	// Result is one of: yes, no, done, failed, would run.
	Result, Text string
	Took         time.Duration // 0 if it did not run
	OnPath       bool
}

// maxSteps bounds the steps shown of a run: a graph has at most 256 nodes.
const maxSteps = 256

type diagnosisView struct {
	Diagnosis
	Key        string
	Started    moment
	Took, Word string
	Steps      []stepView
}

type stepView struct {
	Step
	Took string
}

func (v *view) diagnoses(list []Diagnosis, all int) {
	for i := range list[:min(len(list), maxDiagnoses)] {
		v.Diagnoses = append(v.Diagnoses, list[i].view())
	}
	v.MoreDiagnoses = max(0, all-len(v.Diagnoses))
}

// view returns the Diagnosis with all texts made safe.
func (d *Diagnosis) view() diagnosisView {
	out := diagnosisView{Key: key(d.ID), Started: moment{d.Started}, Word: "unknown"}
	out.Diagnosis = Diagnosis{
		ID: d.ID, Name: safe(d.Name), Trigger: safe(d.Trigger), OperationSet: safe(d.OperationSet), Subject: safe(d.Subject), Phase: safe(d.Phase), Outcome: name(d.Outcome),
		Message: safe(d.Message), Path: safe(d.Path), Graph: d.Graph, Ended: d.Ended, Repairs: allSafe(d.Repairs), Files: allSafe(d.Files),
	}
	if d.Cause != nil {
		out.Cause, out.Word = &Cause{name(d.Cause.Reason), safe(d.Cause.Message)}, "found"
	}
	for _, c := range d.Excluded {
		out.Excluded = append(out.Excluded, Cause{safe(c.Reason), safe(c.Message)})
	}
	if !d.Started.IsZero() && !d.Ended.IsZero() {
		out.Took = display.Duration(d.Ended.Sub(d.Started))
	}
	for _, s := range d.Steps[:min(len(d.Steps), maxSteps)] {
		s.Operation, s.Effect, s.Result, s.Text = safe(s.Operation), safe(s.Effect), safe(s.Result), safe(s.Text)
		took := ""
		if s.Took > 0 {
			took = display.Duration(s.Took)
		}
		out.Steps = append(out.Steps, stepView{s, took})
	}
	return out
}

func allSafe(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list[:min(len(list), maxSteps)] {
		out = append(out, safe(s))
	}
	return out
}
