// Package controller looks after the objects of diagnoses in a cluster.
//
//	Operations, OperationSets ──► sets ──► status.ready, paths, condition Accepted
//	Triggers ─────────────────────────► condition Accepted
//	Diagnoses ──► diagnoses ──► placed on the node of their pod, split up into targets,
//	  Nodes, Leases ──┘         refused, ended where no agent does, deleted by age
//	            └──► history ──► deleted by number
//
// Diagnoses are run by the agents of their nodes (package worker). This package writes the
// status of those that no agent runs, or can run: which fields are whose is in docs/api.md.
// A status is written by a patch that carries the resourceVersion it was made for: who
// else writes is never written over. One whose condition Complete is True is not changed
// any more. Package repair writes the conditions of RemediationPolicies.
//
// Each object is looked at by itself, and what there is to do follows from the object, the
// Nodes and the agents' Leases: a controller that ends half way is gone on from by the
// next. What is waited for is bounded, so that no Diagnosis waits or runs for ever.
//
// The manager is one of package leader. Its cache must keep Nodes and the agents' Leases as
// package liveness does.
package controller
