package runner

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
)

// maxStatus is the share of [v1alpha1.MaxStatusBytes] for a run. The rest is for conditions,
// artifacts and plan, which others write.
const maxStatus = 192 << 10

// maxFailedPathBytes bounds the failed paths within it.
const maxFailedPathBytes = 12 << 10

// Status writes the report into a Diagnosis' status: phase, times, verdict, paths, results and
// action, never more than maxStatus bytes of JSON. It leaves conditions, artifacts, plan and
// checkpoint as they are.
//
// Each node that ran gets a result with its state. The remaining room is filled with messages and
// then values, beginning with those of the path. A result without its message or a value is
// marked as truncated.
func (rep *Report) Status(s *v1alpha1.DiagnosisStatus) {
	s.Phase = rep.Phase
	s.StartTime, s.CompletionTime = microTime(rep.Started), microTime(rep.Ended)
	s.Verdict = nil
	if v := rep.Verdict; v != nil {
		s.Verdict = &v1alpha1.Verdict{Reason: v.Reason, Message: v.Message}
	}
	s.SucceededPath = nil
	if rep.Phase == v1alpha1.PhaseSucceeded {
		s.SucceededPath = path(rep.Path)
	}
	s.FailedPaths, s.FailedPathCount = rep.failedPaths(), ""
	if rep.FailedCount != nil && rep.FailedCount.Sign() > 0 {
		s.FailedPathCount = rep.FailedCount.String()
	}
	s.Action = rep.action()
	s.Results = nil
	left := maxStatus - size(struct {
		*v1alpha1.Verdict
		Succeeded v1alpha1.Path
		Failed    []v1alpha1.Path
		Action    string
	}{s.Verdict, s.SucceededPath, s.FailedPaths, s.Action}) - 1<<10 // phase, times, count
	s.Results = rep.results(left)
}

// failedPaths returns the failed paths, each up to the node that failed, without duplicates.
func (rep *Report) failedPaths() []v1alpha1.Path {
	failed := map[int]bool{}
	for i := range rep.Records {
		failed[rep.Records[i].ID] = rep.Records[i].outcome() == graph.Failed
	}
	var out []v1alpha1.Path
	bytes := 0
	for _, p := range rep.Failed {
		if i := slices.IndexFunc(p, func(id int) bool { return failed[id] }); i >= 0 {
			p = p[:i+1]
		}
		if len(out) > 0 && slices.Equal(out[len(out)-1], path(p)) {
			continue
		}
		bytes += size(p) + 1
		if len(out) == v1alpha1.MaxFailedPaths || bytes > maxFailedPathBytes {
			break
		}
		out = append(out, path(p))
	}
	return out
}

// action returns a summary of the repairs that were made or would have been; for people.
func (rep *Report) action() string {
	said := map[v1alpha1.ResultState]string{
		v1alpha1.ResultSucceeded: "", v1alpha1.ResultWouldRun: " (would)", v1alpha1.ResultWithheld: " (withheld)",
		v1alpha1.ResultAwaitingApproval: " (waits)", v1alpha1.ResultUnknown: " (unknown)", v1alpha1.ResultRunning: " (runs)",
		v1alpha1.ResultFailed: " (failed)", v1alpha1.ResultRefuted: " (failed)",
	}
	var parts []string
	for i := range rep.Records {
		if rec := &rep.Records[i]; rec.Repairs {
			parts = append(parts, rec.Operation+said[rec.State])
		}
	}
	return display.Cut(strings.Join(parts, ", "), 256)
}

// results returns the nodes' results in the order of their ids. Together they have at most left
// bytes of JSON, unless the minimum of each takes more already.
func (rep *Report) results(left int) []v1alpha1.Result {
	out := make([]v1alpha1.Result, len(rep.Records))
	for i := range out {
		rec := &rep.Records[i]
		out[i] = v1alpha1.Result{ID: int32(rec.ID), Operation: rec.Operation, State: rec.State, Reason: rec.Reason, Attempts: int32(rec.Attempts), Truncated: true}
		out[i].StartTime = microTime(rec.Start)
		if rec.Duration > 0 {
			out[i].Duration = &metav1.Duration{Duration: rec.Duration.Round(time.Microsecond)}
		}
		left -= size(out[i]) + 1
		out[i].Truncated = rec.Truncated
	}
	order := rep.importance()
	for _, i := range order {
		if n := size(rep.Records[i].Message); n > 2 && n+14 <= left {
			out[i].Message = rep.Records[i].Message
			left -= n + 14
		} else if n > 2 {
			out[i].Truncated = true
		}
	}
	for _, i := range order {
		values, truncated := valuesOf(&rep.Records[i])
		if n := size(values); len(values) > 0 && n+10 <= left {
			out[i].Values = values
			left -= n + 10
		} else if len(values) > 0 {
			truncated = true
		}
		out[i].Truncated = out[i].Truncated || truncated
	}
	return out
}

// importance returns the indices of the records: first those on the path, then the others.
func (rep *Report) importance() []int {
	var first, rest []int
	for i := range rep.Records {
		if slices.Contains(rep.Path, rep.Records[i].ID) {
			first = append(first, i)
		} else {
			rest = append(rest, i)
		}
	}
	return append(first, rest...)
}

// valuesOf returns the part of a node's results that fits into a status.
func valuesOf(rec *Record) (values map[string]string, truncated bool) {
	values = map[string]string{}
	left := v1alpha1.MaxResultBytes
	for _, key := range sortedKeys(rec.Results) {
		value := rec.Results[key]
		if len(key)+1 > left {
			truncated = true
			continue
		}
		if most := left - len(key); len(value) > most {
			value, truncated = display.Prefix(value, most), true
		}
		values[key] = value
		left -= len(key) + len(value)
	}
	return values, truncated
}

// size returns the length of v as JSON, which is at least that of the API server's encoding.
func size(v any) int {
	raw, err := json.Marshal(v)
	if err != nil {
		return maxStatus // cannot happen; if it does, nothing more is added
	}
	return len(raw)
}

func microTime(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	return &metav1.MicroTime{Time: t}
}

func path(ids []int) v1alpha1.Path {
	out := make(v1alpha1.Path, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}
