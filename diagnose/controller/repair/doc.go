// Package repair decides on the repairs that Diagnoses wait with, by package policy, makes
// those that change objects of the API, by package action, and says whether they helped.
//
//	a result AwaitingApproval ──► plan ──► Decide ──► slot of the budget
//	  ──► status: plan, decision, outcome Running ──► the act ──► its outcome
//	  ──► problem gone, node ready? ──► condition Verified ──► the slot is settled
//
// A repair that the node's agent makes is only granted: the outcome is the agent's.
//
// All that is known of a repair is in the Diagnosis, the policy's slots and the marks on
// the node, each written under optimistic locking; a reconciler keeps nothing that
// another one, after its end, would miss. That a repair begins is written before it does.
// One whose end nobody saw is looked at by the next reconciler: it goes on, or is done, or
// is Unknown where doing it again could do harm.
//
// One of several controllers works, the leader. Two at once would do no harm but to each
// other's time.
//
// It needs the rights that docs/controller.md names.
package repair
