package worker

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/artifact"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// maxSubject is the API's limit for a subject in characters. An escaped byte may take four, and
// truncation adds one.
const maxSubject = 256

// Reasons of the condition Complete while it is False.
const (
	reasonPending = "Pending"
	reasonRunning = "Running"
	reasonWaiting = "Waiting"
)

// snapshot is the state of a Diagnosis to report at a moment.
type snapshot struct {
	diagnosis *v1alpha1.Diagnosis
	report    *runner.Report
	end       *end
	artifacts []artifact.Artifact
	problem   problemRef
	node      string
	hold      hold
	version   uint64
}

// snapshot must be called with the lock held.
func (w *Worker) snapshot(e *entry) *snapshot {
	s := &snapshot{diagnosis: e.Diagnosis, report: e.report, node: w.c.Node, hold: w.hold(), version: e.version}
	if e.End != nil {
		s.end = new(*e.End)
	}
	if e.Problem != nil {
		s.problem = *e.Problem
	}
	if w.artifacts != nil {
		s.artifacts = w.artifacts.List(e.ID)
	}
	return s
}

// applied is how much of a status a snapshot has changed.
type applied int

const (
	appliedNothing applied = iota // another agent runs it
	appliedProblem                // it is final except for the problem
	appliedAll
)

// apply writes the node's part of a status.
func (n *snapshot) apply(s *v1alpha1.DiagnosisStatus) applied {
	now := time.Now()
	switch {
	case s.Completed():
		n.applyProblem(s)
		return appliedProblem
	case n.hold.another(s):
		return appliedNothing
	}
	was := s.DeepCopy()
	s.ObservedGeneration = n.diagnosis.Generation
	s.Subject = subjectOf(n.diagnosis, n.node)
	if n.report != nil {
		n.report.Status(s)
		n.keepRepairs(s, was)
	}
	s.Artifacts = artifactsOf(n.artifacts, n.node)
	n.applyProblem(s)
	n.checkpoint(s, now)
	n.condition(s, now)
	fit(s)
	if was.Checkpoint != nil {
		// The time changes only if something else does, so that an unchanged status is not written.
		at := s.Checkpoint.Time
		// As JSON: the API server truncates times to microseconds, for instance.
		if s.Checkpoint.Time = was.Checkpoint.Time; !bytes.Equal(jsonOf(was), jsonOf(s)) {
			s.Checkpoint.Time = at
		}
	}
	return appliedAll
}

// keepRepairs keeps the results of repairs that an earlier run has begun and this one has not
// decided on. If the checkpoint of the earlier run is lost, nothing else prevents their repetition.
func (n *snapshot) keepRepairs(s, was *v1alpha1.DiagnosisStatus) {
	for _, r := range was.Results {
		if id := int(r.ID); !n.hasRun(id) && begunBefore(was, id, n.report.Started) {
			s.Results = slices.DeleteFunc(s.Results, func(o v1alpha1.Result) bool { return o.ID == r.ID })
			s.Results = append(s.Results, r)
		}
	}
	slices.SortFunc(s.Results, func(a, b v1alpha1.Result) int { return cmp.Compare(a.ID, b.ID) })
}

// begunBefore reports whether a status has the repair of a node as begun or made by the agent before
// a run started.
func begunBefore(s *v1alpha1.DiagnosisStatus, id int, started time.Time) bool {
	started = started.Truncate(time.Microsecond) // like the times of the API
	if c := s.Checkpoint; c != nil && c.Intent != nil && int(c.Intent.ID) == id && c.Intent.Time.Time.Before(started) {
		return true
	}
	decided, r := s.Remediation(id), s.Result(id)
	return decided != nil && decided.Outcome == nil && r != nil && r.StartTime != nil && r.StartTime.Time.Before(started) &&
		(mayBeMade(r.State) || r.State == v1alpha1.ResultFailed)
}

func (n *snapshot) applyProblem(s *v1alpha1.DiagnosisStatus) {
	if n.problem.State != "" {
		s.Problem = &v1alpha1.Problem{State: n.problem.State, Since: metav1.NewMicroTime(n.problem.Since)}
	}
}

// checkpoint records who runs it. An intent stays until the outcome of its repair is reported. If
// the outcome never becomes known, it stays even after the end.
func (n *snapshot) checkpoint(s *v1alpha1.DiagnosisStatus, now time.Time) {
	c := &v1alpha1.Checkpoint{Holder: n.hold.holder, Time: metav1.NewMicroTime(now)}
	if n.report != nil && n.report.Running > 0 {
		c.Running = new(int32(n.report.Running)) //nolint:gosec // a node of a graph of 256
	}
	if old := s.Checkpoint; old != nil && old.Intent != nil && !n.outcomeKnown(int(old.Intent.ID)) {
		c.Intent = old.Intent
	}
	s.Checkpoint = c
}

func (n *snapshot) outcomeKnown(id int) bool {
	if n.end != nil && n.end.Reason != v1alpha1.ReasonOutcomeUnknown {
		return true
	}
	return n.report != nil && n.hasRun(id)
}

// hasRun reports whether the outcome of a node is in the report.
func (n *snapshot) hasRun(id int) bool {
	return slices.ContainsFunc(n.report.Records, func(r runner.Record) bool { return r.ID == id && hasEnded(&r) })
}

// condition records whether and how it has ended.
func (n *snapshot) condition(s *v1alpha1.DiagnosisStatus, now time.Time) {
	c := metav1.Condition{
		Type: v1alpha1.ConditionComplete, Status: metav1.ConditionFalse, Reason: reasonRunning,
		ObservedGeneration: n.diagnosis.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	switch {
	case n.end != nil:
		s.Phase = n.end.Phase
		if s.CompletionTime == nil {
			s.CompletionTime = new(metav1.NewMicroTime(n.end.At))
		}
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, n.end.Reason, n.end.Message
	case n.report == nil && s.Phase != v1alpha1.PhaseRunning:
		s.Phase, c.Reason = v1alpha1.PhasePending, reasonPending
	case n.report == nil: // an earlier process has begun it
		if was := meta.FindStatusCondition(s.Conditions, c.Type); was != nil && was.Reason == reasonWaiting {
			c.Reason, c.Message = was.Reason, was.Message
		}
	case n.report.Waiting != nil:
		c.Reason, c.Message = reasonWaiting, "node "+strconv.Itoa(n.report.Waiting.ID)+": "+n.report.Waiting.Reason
	}
	c.Message = display.Safe(c.Message, v1alpha1.MaxMessageBytes)
	meta.SetStatusCondition(&s.Conditions, c)
}

// subjectOf returns a human-readable name of what a Diagnosis is about.
func subjectOf(d *v1alpha1.Diagnosis, node string) string {
	text := d.Annotations[trigger.AnnotationSubject]
	p := d.Spec.Parameters
	switch pod := d.Pod(); {
	case pod.Name != "":
		text = pod.String()
	case text != "":
	case p["address"] != "" && p["port"] != "":
		text = p["address"] + ":" + p["port"]
	default:
		text = cmp.Or(p["device"], p["mountPoint"], p["cgroup"], node)
	}
	short := display.Safe(text, maxSubject-1)
	if utf8.RuneCountInString(short) > maxSubject {
		short = display.Safe(text, maxSubject/4-1)
	}
	return short
}

// artifactsOf returns the complete artifacts. Their names begin with the node of the graph that
// made them.
func artifactsOf(list []artifact.Artifact, node string) []v1alpha1.Artifact {
	var out []v1alpha1.Artifact
	for i := range list {
		a := &list[i]
		number, _, _ := strings.Cut(a.Name, "-")
		id, err := strconv.ParseUint(number, 10, 8)
		if err != nil || a.SHA256 == "" || len(out) == v1alpha1.MaxArtifacts {
			continue
		}
		out = append(out, v1alpha1.Artifact{
			Name: a.Name, ID: int32(id), Node: node, Size: *resource.NewQuantity(a.Size, resource.BinarySI),
			SHA256: v1alpha1.Digest(a.SHA256), Truncated: a.Truncated,
		})
	}
	return out
}

// fit keeps a status within its size limit, even if others have added fields. It drops values of
// results first, starting with the last nodes, then messages, artifacts and failed paths. It marks
// dropped parts if there is a field for that.
func fit(s *v1alpha1.DiagnosisStatus) {
	over := func() bool { return len(jsonOf(s)) > v1alpha1.MaxStatusBytes }
	for i := len(s.Results) - 1; i >= 0 && over(); i-- {
		if r := &s.Results[i]; len(r.Values) > 0 {
			r.Values, r.Truncated = nil, true
		}
	}
	for i := len(s.Results) - 1; i >= 0 && over(); i-- {
		if r := &s.Results[i]; r.Message != "" {
			r.Message, r.Truncated = "", true
		}
	}
	if over() {
		s.FailedPaths = nil // failedPathCount stays
	}
	if over() {
		s.Artifacts = nil
	}
}

func jsonOf(s *v1alpha1.DiagnosisStatus) []byte {
	raw, _ := json.Marshal(s) // nothing here fails to marshal
	return raw
}
