// Package repair decides, with package policy, on the repairs that Diagnoses wait for, makes those
// that change API objects (cordons, taints, evictions, drains, labels) by [Actions], and verifies
// whether they helped.
//
//	a result AwaitingApproval ──► plan ──► Decide ──► slot of the budget
//	  ──► status: plan, decision, outcome Running ──► the act ──► its outcome
//	  ──► problem gone, node ready? ──► condition Verified ──► the slot is settled
//
// A repair that the node's agent makes is only allowed here: its outcome is reported by the agent.
//
// The whole state of a repair is in the Diagnosis, the policy's slots and the marks on the node,
// each written with optimistic locking. A reconciler keeps nothing in memory that its successor
// would need. The beginning of a repair is recorded before it begins. If its end was not recorded,
// the next reconciler checks it: the repair continues, or is done, or is Unknown if repeating it
// could do harm.
//
// Only the leader of several controllers works. Two at once would do no harm except waste each
// other's time.
//
// docs/controller.md lists the RBAC rights it needs.
package repair
