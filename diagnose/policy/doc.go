// Package policy decides whether a repair may be made, and limits repairs to a budget.
//
//   - [Decide] is pure: policies, nodes and the wanted repair give one of Run, WouldRun,
//     Withheld and Wait, with a reason and the facts.
//   - [Budget] manages the slots in a RemediationPolicy's status.repairs. Each slot is taken and
//     released by a write with optimistic locking, which applies [Decide]'s rules to the object
//     that it overwrites. A slot is held until its repair is verified. A controller that stops
//     leaks no slot: see [Settle].
//   - [Plan.Digest] is what an approval is bound to.
//   - [Verification] decides whether a repair has helped, [Policy.Next] returns the next step
//     after one that has not, [Undo] reverts what Kernosis itself did to a node.
//
// The package makes no repairs and starts no goroutines. The caller passes in the nodes, the
// history and the time. docs/remediation.md explains the rules to users.
package policy
