// Package lease renews the Lease of a node's agent, as a sign of life to others. It also defines the
// contract between agent and controller: the Lease's name, its annotations, and the reasons that the
// controller uses for a silent agent.
//
// There is one Lease per node, in the agents' namespace. The Node object owns it, and it is
// garbage-collected with the Node. It contains
//
//   - when the agent has last renewed it, by the node's clock (spec.renewTime);
//   - since when this agent has it (spec.acquireTime), and how many agents had it before
//     (spec.leaseTransitions);
//   - which condition types the agent has, or may have, on the Node ([AnnotationTypes]): they
//     become stale while it is silent;
//   - whether it has shut down cleanly ([AnnotationDraining]), as in an upgrade;
//   - which live agents of the node run Diagnoses ([AnnotationHolders]): other agents leave
//     their Diagnoses alone ([Keeper.Gone]);
//   - the agent's version ([AnnotationVersion]).
//
// A [Keeper] renews it by updating the object as last seen, without a GET.
//
// The agent needs permission to get, create and update Leases in the namespace, and to get its Node.
package lease
