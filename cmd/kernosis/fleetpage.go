package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/reporter/web"
)

// fleetWithin bounds reads of the cache, which block until it is filled.
const fleetWithin = 2 * time.Second

// fleetNodes reads the cluster's nodes for the web page, from the manager's cache, which every
// replica has.
type fleetNodes struct {
	cache     client.Reader
	namespace string        // namespace of the Leases
	silent    time.Duration // minimum time without a renewal after which an agent is silent
	diagnoses atomic.Bool   // whether the CRDs are installed
}

func (f *fleetNodes) read() (out web.Fleet, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), fleetWithin)
	defer cancel()
	var nodes corev1.NodeList
	var leases coordinationv1.LeaseList
	var diagnoses v1alpha1.DiagnosisList
	// The lists share their objects with the cache, so they must not be changed.
	if err := f.cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return out, fmt.Errorf("list nodes: %w", err)
	}
	if err := f.cache.List(ctx, &leases, client.InNamespace(f.namespace), client.UnsafeDisableDeepCopy); err != nil {
		return out, fmt.Errorf("list leases: %w", err)
	}
	if !f.diagnoses.Load() {
		out.Note = "This replica has no Diagnoses: it is not the leader, or their CRDs are not installed."
	} else if err := f.cache.List(ctx, &diagnoses, client.UnsafeDisableDeepCopy); err != nil {
		return out, fmt.Errorf("list diagnoses: %w", err)
	}
	agents := make(map[string]*coordinationv1.Lease, len(leases.Items))
	for i := range leases.Items {
		if node, ok := lease.NodeOf(&leases.Items[i]); ok {
			agents[node] = &leases.Items[i]
		}
	}
	at, now := make(map[string]int, len(nodes.Items)), time.Now()
	for i := range nodes.Items {
		at[nodes.Items[i].Name] = i
		out.Nodes = append(out.Nodes, fleetNode(&nodes.Items[i], agents[nodes.Items[i].Name], now, f.silent))
	}
	for i := range diagnoses.Items {
		if n, ok := at[diagnoses.Items[i].Spec.NodeName]; ok {
			addDiagnosis(&out.Nodes[n], &diagnoses.Items[i])
		}
	}
	return out, nil
}

// fleetNode converts a Node and the Lease of its agent, which may be nil, for the page.
func fleetNode(n *corev1.Node, l *coordinationv1.Lease, now time.Time, silent time.Duration) web.FleetNode {
	out := web.FleetNode{Name: n.Name, Cordoned: n.Spec.Unschedulable, Agent: web.AgentMissing}
	var types []string
	if l != nil {
		types = lease.TypesOf(l)
		out.Agent, out.Version = web.AgentReporting, l.Annotations[lease.AnnotationVersion]
		if lacks := l.Annotations[lease.AnnotationDegraded]; lacks != "" {
			out.Agent, out.Lacks = web.AgentDegraded, strings.Split(lacks, "\n")
		}
		switch {
		case !lease.DrainingSince(l).IsZero():
			out.Agent = web.AgentDraining
		case isSilent(l, now, silent):
			out.Agent = web.AgentSilent
		}
	}
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		if c.Type == corev1.NodeReady {
			out.Ready = c.Status == corev1.ConditionTrue
		}
		switch c.Reason {
		case lease.ReasonUnknown: // set by the controller because the agent is silent
			out.Agent = web.AgentSilent
		case lease.ReasonNeverUpdated:
		default:
			if !slices.Contains(types, string(c.Type)) {
				continue
			}
		}
		out.Conditions = append(out.Conditions, problem.Condition{
			Type: string(c.Type), Status: problem.Status(c.Status), Reason: c.Reason, LastTransition: c.LastTransitionTime.Time,
		})
	}
	return out
}

// isSilent reports whether an agent has not renewed its Lease for longer than package liveness allows.
// The renewal time is from the node's clock; the period tolerates one that is some seconds slow.
func isSilent(l *coordinationv1.Lease, now time.Time, silent time.Duration) bool {
	return l.Spec.RenewTime != nil && now.Sub(l.Spec.RenewTime.Time) > max(silent, lease.Patience(l))
}

// addDiagnosis adds a Diagnosis to the node's counts and latest cause.
func addDiagnosis(n *web.FleetNode, d *v1alpha1.Diagnosis) {
	at, ended := d.Status.CompletedAt()
	if !ended {
		at = d.CreationTimestamp.Time
		n.Running++
		if slices.ContainsFunc(d.Status.Results, func(r v1alpha1.Result) bool { return r.State == v1alpha1.ResultAwaitingApproval }) {
			n.Waiting++
		}
	}
	v := d.Status.Verdict
	if v == nil {
		return
	}
	if at.After(n.CauseAt) || at.Equal(n.CauseAt) && d.Name > n.Diagnosis {
		n.Cause, n.Diagnosis, n.CauseAt = v.Reason, d.Name, at
	}
}
