package worker

import (
	"cmp"
	"slices"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Listed is a Diagnosis that the worker knows: one that waits, runs, or has ended and is kept.
type Listed struct {
	ID              string // of the run, for [runner.ReadSaved] once it has begun
	Namespace, Name string
	Trigger         string // empty: a person created it
	OperationSet    string
	Subject         string
	Rule            string // of the problem that it was created for
	Taken           time.Time
	// Phase, Reason, Message and Ended describe its end. Before that, the phase is Running or
	// Pending.
	Phase           v1alpha1.Phase
	Reason, Message string
	Ended           time.Time
}

// List returns the Diagnoses of the node, the newest first. Deleted ones are left out. It reads no file.
func (w *Worker) List() []Listed {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]Listed, 0, len(w.entries))
	for _, e := range w.entries {
		if e.Gone {
			continue
		}
		d := e.Diagnosis
		l := Listed{
			ID: e.ID, Namespace: d.Namespace, Name: d.Name, Trigger: d.Labels[v1alpha1.LabelTrigger],
			OperationSet: d.Spec.OperationSet, Subject: subjectOf(d, w.c.Node), Taken: e.Taken, Phase: v1alpha1.PhasePending,
		}
		if e.Problem != nil {
			l.Rule = e.Problem.Rule
		}
		switch {
		case e.End != nil:
			l.Phase, l.Reason, l.Message, l.Ended = e.End.Phase, e.End.Reason, e.End.Message, e.End.At
		case e.report != nil:
			l.Phase = e.report.Phase
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Listed) int { return cmp.Or(b.Taken.Compare(a.Taken), cmp.Compare(a.ID, b.ID)) })
	return out
}
