package runner

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// Report is what is known of a run. What it points to must not be changed.
type Report struct {
	ID      string
	Phase   v1alpha1.Phase
	Reason  string // that of the condition Complete; empty while it goes on
	Message string
	// Path is the one on which the run ended; while it goes on, the one being tried.
	Path        []int
	Failed      [][]int  // the first paths that failed, each to its end
	FailedCount *big.Int // of all
	// Verdict is that of the last node with one on the succeeded path.
	Verdict *operation.Verdict
	Records []Record // of nodes that ran or would have, by id
	Waiting *Waiting // for the gate; nil: it does not wait
	Running int      // id of the node that runs; 0: none
	Started time.Time
	Ended   time.Time
	// Unsaved is why the newest state is not on the disk; nil: it is.
	Unsaved error
}

// Excluded returns the records of the checks that said no to a cause, with their evidence, in
// the order in which they ran.
func (rep *Report) Excluded() []Record {
	no := slices.DeleteFunc(slices.Clone(rep.Records), func(r Record) bool { return r.State != v1alpha1.ResultRefuted })
	slices.SortStableFunc(no, func(a, b Record) int { return a.Start.Compare(b.Start) })
	return no
}

// Waiting is a repair that waits for the gate.
type Waiting struct {
	ID      int    `json:"id"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

func (e *execution) report() *Report {
	res := e.run.Result()
	rep := &Report{
		ID: e.d.ID, Phase: v1alpha1.PhaseRunning, Path: res.Path, Failed: res.Failed, FailedCount: res.FailedCount,
		Records: slices.Clone(e.cp.Records), Waiting: e.waiting, Started: e.cp.Started, Unsaved: e.unsaved,
	}
	if f := e.cp.Final; f != nil {
		rep.Phase, rep.Reason, rep.Message, rep.Ended = f.Phase, f.Reason, f.Message, f.At
	}
	if rep.Phase == v1alpha1.PhaseSucceeded {
		for _, id := range res.Path {
			if rec := e.record(id); rec != nil && rec.Verdict != nil {
				v := *rec.Verdict
				rep.Verdict = &v
			}
		}
	}
	rep.behindWithheld(e, res)
	switch {
	case e.running != nil:
		rep.Running = e.running.ID
		rec := *e.running
		rec.State = v1alpha1.ResultRunning
		rep.Records = append(rep.Records, rec)
	case e.waiting != nil:
		rec := e.newRecord(e.waiting.ID)
		rec.State, rec.Reason, rec.Message = v1alpha1.ResultAwaitingApproval, e.waiting.Reason, e.waiting.Message
		rep.Records = append(rep.Records, *rec)
	}
	slices.SortFunc(rep.Records, func(a, b Record) int { return cmp.Compare(a.ID, b.ID) })
	return rep
}

// behindWithheld adds the nodes of the path behind a repair that was not made.
func (rep *Report) behindWithheld(e *execution, res graph.Result) {
	if res.Withheld == 0 {
		return
	}
	at := slices.Index(res.Path, res.Withheld)
	for _, id := range res.Path[at+1:] {
		rec := e.newRecord(id)
		rec.State, rec.Reason = v1alpha1.ResultWouldRun, "BehindWithheld"
		rec.Message = fmt.Sprintf("comes after the repair of node %d, which was not made", res.Withheld)
		rep.Records = append(rep.Records, *rec)
	}
}

// damaged is the report of a diagnosis whose checkpoint can't be read and that could
// have repaired something, or was run by a newer version.
func (e *execution) damaged(err error) *Report {
	message := "what it has found is not known. "
	if e.mayRepair() {
		message = "whether a repair was made is not known: a person must look. "
	}
	return &Report{
		ID: e.d.ID, Phase: v1alpha1.PhaseUnknown, Reason: v1alpha1.ReasonOutcomeUnknown, FailedCount: new(big.Int),
		Message: oneLine(message + err.Error()),
	}
}
