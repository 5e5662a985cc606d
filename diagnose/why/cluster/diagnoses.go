package cluster

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/diagnose/why"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// diagnoses reads the Diagnoses about the subject: those in the agents' namespaces, and for a pod also
// those of users in its own. The author of a Diagnosis says which problem it is about. So Diagnoses of
// users can't explain a node, or a pod of another namespace.
func (r *reader) diagnoses(ctx context.Context, node string) {
	o := metav1.ListOptions{Limit: maxObjects}
	if node != "" {
		o.FieldSelector = "spec.nodeName=" + node
	}
	var refused []string
	for _, ns := range r.namespaces() {
		switch err := r.list(ctx, ns, o); {
		case err == nil:
		case apierrors.IsForbidden(err):
			refused = append(refused, ns)
		case apierrors.IsNotFound(err):
			return // the kind is not installed, so there are none
		default:
			r.lacks("Diagnoses", err.Error(), false)
			return
		}
	}
	if len(refused) > 0 {
		r.lacks("Diagnoses in "+strings.Join(refused, ", "), "permission denied", false)
	}
}

func (r *reader) list(ctx context.Context, namespace string, o metav1.ListOptions) error {
	found, err := r.own.Resource(v1alpha1.GroupVersion().WithResource("diagnoses")).Namespace(namespace).List(ctx, o)
	if err != nil {
		return err
	}
	if found.GetContinue() != "" {
		r.lacks("Diagnoses in "+namespace, fmt.Sprintf("more than %d: some are omitted", maxObjects), false)
	}
	var list v1alpha1.DiagnosisList
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.UnstructuredContent(), &list); err != nil {
		return err
	}
	for i := range list.Items {
		if d := &list.Items[i]; r.about(d) {
			r.in.Diagnoses = append(r.in.Diagnoses, Diagnosis(d))
		}
	}
	return nil
}

func (r *reader) about(d *v1alpha1.Diagnosis) bool {
	s := &r.in.Subject
	if s.Kind == why.KindNode {
		return d.Spec.NodeName == s.Name
	}
	ref, pod := d.Spec.PodReference, d.Pod()
	if ref != nil && (pod.Namespace != s.Namespace || pod.Name != s.Name) {
		return false // whatever UID its author has written
	}
	if uid := trigger.PodUID(d); uid != "" && s.UID != "" {
		return r.in.Pods[uid] != "" // another pod with this name has another UID
	}
	return ref != nil && !d.CreationTimestamp.Time.Before(r.created) && (s.Container == "" || ref.Container == "" || ref.Container == s.Container)
}

// Diagnosis converts a Diagnosis for an answer.
func Diagnosis(d *v1alpha1.Diagnosis) why.Diagnosis {
	p := d.Spec.Parameters
	out := why.Diagnosis{
		Namespace: d.Namespace, Name: d.Name, UID: string(d.UID), Rule: p["rule"], Reason: p["reason"],
		Subject: p["subject"], PodUID: trigger.PodUID(d), Container: cmp.Or(p["container"], p["containerID"]), Started: d.CreationTimestamp.Time,
	}
	if pod := d.Pod(); pod.Name != "" {
		out.Pod, out.Container = pod.String(), cmp.Or(d.Spec.PodReference.Container, out.Container)
	}
	if t := d.Status.StartTime; t != nil {
		out.Started = t.Time
	}
	if t := d.Status.CompletionTime; t != nil {
		out.Ended = t.Time
	}
	if v := d.Status.Verdict; v != nil {
		out.Verdict, out.Message = v.Reason, v.Message
	}
	Results(&out, d.Status.Results, d.Status.SucceededPath)
	return out
}

// Results adds the results of the operations.
func Results(out *why.Diagnosis, results []v1alpha1.Result, path v1alpha1.Path) {
	names := map[int32]string{}
	for i := range results {
		res := &results[i]
		names[res.ID] = res.Operation
		switch res.State {
		case v1alpha1.ResultRefuted:
			out.Excluded = append(out.Excluded, why.Finding{Operation: res.Operation, Reason: res.Reason, Message: res.Message})
		case v1alpha1.ResultFailed:
			if strings.HasPrefix(res.Operation, "check-") {
				out.CouldNotLook = append(out.CouldNotLook, why.Finding{Reason: res.Operation, Message: res.Message})
			}
		case v1alpha1.ResultWouldRun, v1alpha1.ResultWithheld, v1alpha1.ResultAwaitingApproval:
			out.Repairs = append(out.Repairs, why.Repair{Operation: res.Operation, State: string(res.State), Message: strings.TrimSuffix(res.Reason+": "+res.Message, ": "), Held: true})
		case v1alpha1.ResultRunning, v1alpha1.ResultSucceeded, v1alpha1.ResultCancelled, v1alpha1.ResultUnknown:
		}
	}
	for _, id := range path {
		if name := names[id]; name != "" {
			out.Path = append(out.Path, name)
		}
	}
}

// lease checks whether the node's agent is alive.
func (r *reader) lease(ctx context.Context, node string) {
	var refused []string
	source := "agent of node " + node
	for _, ns := range r.c.Namespaces {
		l, err := r.core.CoordinationV1().Leases(ns).Get(ctx, lease.Name(node), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case apierrors.IsForbidden(err):
			refused = append(refused, ns)
			continue
		case err != nil:
			r.lacks("Lease of the agent", err.Error(), true)
			return
		}
		if l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
			r.in.Blind = append(r.in.Blind, why.Blind{Source: source, Why: "its Lease was never renewed"})
			return
		}
		if since := lease.DrainingSince(l); !since.IsZero() {
			r.in.Blind = append(r.in.Blind, why.Blind{Source: source, Why: "it has shut down cleanly", Since: since})
			return
		}
		if silent := r.c.Now.Sub(l.Spec.RenewTime.Time); silent > lease.Patience(l) {
			r.in.Blind = append(r.in.Blind, why.Blind{Source: source, Why: "it is silent: its Lease has expired", Since: l.Spec.RenewTime.Time})
		}
		return
	}
	if len(refused) > 0 {
		r.lacks("Lease of the agent in "+strings.Join(refused, ", ")+" (whether it is alive)", "permission denied", true)
		return
	}
	r.in.Blind = append(r.in.Blind, why.Blind{Source: source, Why: "there is no agent: no Lease " + lease.Name(node) + " in " + strings.Join(r.c.Namespaces, ", ")})
}
