// Package controller reconciles the objects of diagnoses in a cluster.
//
//	Operations, OperationSets ──► sets ──► status.ready, paths, condition Accepted
//	Triggers ─────────────────────────► condition Accepted
//	Diagnoses ──► diagnoses ──► placed on the node of their pod, split up into targets,
//	  Nodes, Leases ──┘         refused, ended if no agent does it, deleted by age
//	            └──► history ──► deleted by number
//
// Diagnoses are run by the agents of their nodes (package worker). This package writes the status
// of those that no agent runs or can run; docs/api.md lists who owns which field. Each status patch
// carries the resourceVersion that was read, so a concurrent write is never overwritten. A
// Diagnosis whose condition Complete is True is no longer changed. Package repair writes the
// conditions of RemediationPolicies.
//
// Each object is reconciled separately, and the next step depends only on the object, the Nodes and
// the agents' Leases: if a controller stops half way, the next one continues. All waiting is
// bounded, so no Diagnosis waits or runs forever.
//
// The manager comes from package leader. Its cache must keep Nodes and the agents' Leases as
// package liveness does.
package controller
