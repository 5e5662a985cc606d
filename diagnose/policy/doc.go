// Package policy says whether a repair may be made, and holds repairs to a budget.
//
//   - [Decide] is pure: policies, nodes and the wanted repair give one of Run, WouldRun,
//     Withheld and Wait, with a reason and the facts.
//   - [Budget] holds the slots of a RemediationPolicy's status.repairs. Each is taken, and
//     given back, by a write that fails where another has written meanwhile; [Decide]'s
//     rules are applied anew to what is written over. A slot is held until its repair is
//     verified, and no controller's end leaks it: see [Settle].
//   - [Plan.Digest] is what an approval is bound to.
//   - [Verification] says whether a repair has helped, [Policy.Next] what comes after one
//     that has not, [Undo] takes back what Kernosis itself did to a node.
//
// The package makes no repair and starts no goroutine. Who calls it hands in the nodes, the
// history and the time. docs/remediation.md has the rules for people.
package policy
