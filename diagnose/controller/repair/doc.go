// Package repair decides, with package policy, on the repairs that Diagnoses wait for, makes those
// that change API objects (cordons, taints, evictions, drains, labels) by [Actions], and verifies
// whether they helped.
//
//	a result AwaitingApproval ──► plan ──► Decide ──► slot of the budget
//	  ──► status: plan, decision, outcome Running ──► the act ──► its outcome
//	  ──► problem gone, node ready? ──► condition Verified ──► the slot is settled
//
// For repairs that the node's agent makes, this package only decides; the agent reports the
// outcome.
//
// The whole state of a repair is in the Diagnosis, the policy's slots and the marks on the node,
// each written with optimistic locking. Nothing that a successor needs is only in memory. The
// beginning of a repair is recorded before it begins. If its end was not recorded, the next
// reconciler checks it: the repair continues, or is done, or is Unknown if repeating it could do
// harm.
//
// Only the leader of several controllers works. Two at once would do no harm, only redundant work.
//
// docs/controller.md lists the RBAC rights it needs.
package repair
