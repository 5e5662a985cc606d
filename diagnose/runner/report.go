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

// Report is the state of a run. What it points to must not be changed.
type Report struct {
	ID      string
	Phase   v1alpha1.Phase
	Reason  string // reason of the condition Complete; empty until the run ends
	Message string
	// Path is the path on which the run ended, or the one being tried.
	Path        []int
	Failed      [][]int  // the first paths that failed, each to its end
	FailedCount *big.Int // of all failed paths
	// Verdict is the last verdict on the succeeded path.
	Verdict *operation.Verdict
	Records []Record // of nodes that ran or would have run, by id
	Waiting *Waiting // for the gate; nil: the run does not wait
	Running int      // id of the running node; 0: none
	Started time.Time
	Ended   time.Time
	// Unsaved is why the newest state is not on disk; nil: it is.
	Unsaved error
}

// Excluded returns the records of refuted checks, with their evidence, in the order in which they
// ran.
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
				rep.Verdict = new(*rec.Verdict)
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

// behindWithheld adds records for the nodes that follow a withheld repair on the path.
func (rep *Report) behindWithheld(e *execution, res graph.Result) {
	if res.Withheld == 0 {
		return
	}
	at := slices.Index(res.Path, res.Withheld)
	for _, id := range res.Path[at+1:] {
		rec := e.newRecord(id)
		rec.State, rec.Reason = v1alpha1.ResultWouldRun, "BehindWithheld"
		rec.Message = fmt.Sprintf("follows the repair of node %d, which was not made", res.Withheld)
		rep.Records = append(rep.Records, *rec)
	}
}

// damaged returns the report of a diagnosis that can't resume from its checkpoint, because it is
// damaged and the diagnosis may have repaired something, or because a newer version wrote it.
func (e *execution) damaged(err error) *Report {
	message := "its findings are unknown. "
	if e.mayRepair() {
		message = "unknown whether a repair was made: check by hand. "
	}
	return &Report{
		ID: e.d.ID, Phase: v1alpha1.PhaseUnknown, Reason: v1alpha1.ReasonOutcomeUnknown, FailedCount: new(big.Int),
		Message: oneLine(message + err.Error()),
	}
}
