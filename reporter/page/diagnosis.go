package page

import (
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

// Diagnosis is one as the page shows it.
type Diagnosis struct {
	ID   string // of the run
	Name string
	// Trigger has created it; empty: a person has.
	Trigger, OperationSet, Subject string
	Phase                          string
	// Outcome is in a word where neither cause nor phase says it; empty: one of them does.
	Outcome        string
	Started, Ended time.Time // zero: it has not
	// Cause is the verdict; nil: there is none, and Message says why.
	Cause    *Cause
	Message  string
	Excluded []Cause
	Steps    []Step
	Path     string // the one on which it ended
	Repairs  []string
	Files    []string
	// Graph reports whether the run has a drawing.
	Graph bool
}

// Cause is a cause in a word and in a sentence.
type Cause struct{ Reason, Message string }

// Step is what became of one node of the graph.
type Step struct {
	ID                int
	Operation, Effect string
	// Result is in a word: yes, no, done, failed, would run.
	Result, Text string
	Took         time.Duration // 0: it did not run
	OnPath       bool
}

// maxSteps bounds what is shown of one run: a graph has 256 nodes at most.
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

// view makes all texts safe.
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
