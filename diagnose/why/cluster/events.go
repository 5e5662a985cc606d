package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/diagnose/why"
	"github.com/kernosis/kernosis/reporter/kube/events"
)

// isNow is part of the message of an Event about a condition: "KernelDeadlock is now True: ".
const isNow = " is now "

// events reads the Events of an object: the agent's become problems, others are kept as Events.
func (r *reader) events(ctx context.Context, namespace, by, of string) error {
	list, err := r.core.CoreV1().Events(namespace).List(ctx, page(by))
	if err != nil {
		if !r.goesOn("Events of "+of, err, true) {
			return err
		}
		return nil
	}
	if list.Continue != "" {
		r.lacks("Events of "+of, fmt.Sprintf("more than %d: some are omitted", maxObjects), false)
	}
	s := &r.in.Subject
	if s.Kind == why.KindPod && s.UID == "" {
		// The pod is gone: take the UID of the latest with this name.
		if s.UID = latest(list.Items); s.UID != "" {
			r.in.Pods[s.UID] = s.Namespace + "/" + s.Name
		}
	}
	for i := range list.Items {
		e := &list.Items[i]
		if s.Kind == why.KindPod && s.UID != "" && r.in.Pods[string(e.InvolvedObject.UID)] == "" {
			continue // of an earlier pod with this name
		}
		if e.Source.Component == events.Component {
			r.ours(e)
		} else {
			r.others(e)
		}
	}
	slices.SortStableFunc(r.in.Events, func(a, b why.Event) int { return b.Last.Compare(a.Last) })
	return nil
}

// latest returns the UID of the object of the agent's latest Event, or "".
func latest(list []corev1.Event) string {
	var uid string
	var last time.Time
	for i := range list {
		e := &list[i]
		if at, _ := pods.LastOccurrence(e); e.Source.Component == events.Component && (uid == "" || at.After(last)) {
			uid, last = string(e.InvolvedObject.UID), at
		}
	}
	return uid
}

// ours adds a series of the agent's own Events. It skips an Event that reports a condition as
// healthy again.
func (r *reader) ours(e *corev1.Event) {
	f := event.FactsOf(e.Annotations)
	p := why.Problem{
		From: why.FromAPI, Reason: e.Reason, Message: e.Message, Severity: problem.Warning,
		First: e.FirstTimestamp.Time, Last: e.LastTimestamp.Time, Count: uint64(max(e.Count, 0)), Facts: f, //nolint:gosec // not negative
	}
	if e.InvolvedObject.Kind == "Pod" {
		p.Pod = string(e.InvolvedObject.UID)
	}
	if name, rest, ok := strings.Cut(e.Message, isNow); ok && !strings.Contains(name, " ") {
		status, message, _ := strings.Cut(rest, ": ")
		if problem.Status(status) != problem.True {
			return // the Node's condition has it
		}
		p.Condition, p.Message = name, message
		p.Lasts = slices.ContainsFunc(r.in.Conditions, func(c problem.Condition) bool { return c.Type == name && c.Status == problem.True })
	}
	if e.Type == corev1.EventTypeNormal {
		p.Severity = problem.Info
	}
	r.in.Problems = append(r.in.Problems, p)
}

func (r *reader) others(e *corev1.Event) {
	last, n := pods.LastOccurrence(e)
	r.in.Events = append(r.in.Events, why.Event{
		Last: last, Count: n, Warning: e.Type == corev1.EventTypeWarning, Reason: e.Reason, Message: e.Message,
		By: cmp.Or(e.Source.Component, e.ReportingController, "somebody"), Container: trigger.ContainerOf(e.InvolvedObject.FieldPath),
	})
}
