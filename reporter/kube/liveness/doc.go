// Package liveness acts for silent agents: its controller sets the conditions that a silent agent
// has left on its Node to Unknown.
//
//	Leases, Nodes, the agents' pods ──► tracker ──► judge ──► plan ──► PATCH nodes/status
//	                                   (what was   (pure)    (pure)   (rate by zone)
//	                                    seen when)
//
// An agent is silent when its Lease (package lease) has not changed for a period, by the
// controller's own clock. So the clocks of nodes do not matter, and a controller that has just
// started first waits a full period for each agent. An agent that returns writes its conditions
// itself.
//
//   - Only types that the agent's Lease lists are written, with the reason AgentStatusUnknown, or
//     AgentStatusNeverUpdated if the Node has no such condition. Kubernetes' own types are never
//     written.
//   - If an agent's DaemonSet pod is on a node that never had a Lease, the types from the
//     configuration, or else those that most reporting agents list, are set to Unknown with
//     AgentStatusNeverUpdated. Existing conditions are left alone: another client reports them. The
//     new ones are removed when an agent comes that does not list them, or when the pod is gone.
//   - A Lease marked as draining has a longer period: its agent is being replaced. If no DaemonSet
//     of the agents wants a pod on the node when that period ends, the conditions are removed. The
//     same applies if the Lease was deleted.
//   - While many agents of a zone miss renewals together, each has three periods: the API
//     server is short of CPU, or was unavailable. See [lease.Crowd].
//   - If most agents of a zone are silent, writes in it are slowed. If all agents of all zones are
//     silent, the controller or the API was probably cut off: nothing is written, and afterwards
//     each agent has a full period again.
//
// A Lease whose Node is gone is left to the garbage collector: the Node owns it.
//
// The controller needs permission to list and watch Nodes, Leases, pods and DaemonSets (all but
// Nodes in the agents' namespace), and to patch nodes/status.
package liveness
