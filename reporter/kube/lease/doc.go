// Package lease keeps the Lease of a node's agent, by which others see that it lives,
// and has what agent and controller have agreed on: the Lease's name, its
// annotations, and the reasons that the controller gives for a silent agent.
//
// There is one Lease a node, in the agents' namespace. It belongs to the Node object
// and is collected with it. It says
//
//   - when the agent has last renewed it, by the node's clock (spec.renewTime);
//   - since when this agent has it (spec.acquireTime), and how many had it before
//     (spec.leaseTransitions);
//   - which condition types the agent has, or may have, on the Node
//     ([AnnotationTypes]): those that nobody keeps true while it is silent;
//   - whether it has ended in order ([AnnotationDraining]), as in an upgrade;
//   - which agents of the node run Diagnoses and live ([AnnotationHolders]): others leave
//     theirs alone ([Keeper.Gone]);
//   - the agent's version ([AnnotationVersion]).
//
// A [Keeper] renews it by an update of the object that it has seen last, without a GET.
//
// It needs the rights to get, create and update Leases in the namespace, and to get
// its Node.
package lease
