// Package liveness speaks for agents that do not: its controller sets the conditions
// that a silent agent has left on its Node to Unknown.
//
//	Leases, Nodes, the agents' pods ──► tracker ──► judge ──► plan ──► PATCH nodes/status
//	                                   (what was   (pure)    (pure)   (rate by zone)
//	                                    seen when)
//
// An agent is silent when its Lease (package lease) was not seen to change for a
// period, by the controller's own clock. Nodes' clocks therefore do not matter, and a
// controller that has just started gives each agent a full period first.
//
//   - Only types that the agent's Lease lists are written, with the reason
//     AgentStatusUnknown, or AgentStatusNeverUpdated where the Node has no such
//     condition. Kubernetes' own are never written.
//   - Where a DaemonSet's pod of the agent is on a node and no Lease ever was, the
//     types that the configuration names, or else that most reporting agents list,
//     are set to Unknown with AgentStatusNeverUpdated. Conditions that are there are
//     left alone: somebody else reports them. What was set so is removed again when
//     an agent comes that does not list it, or when the pod is gone.
//   - A Lease that says draining has a longer period: its agent is being replaced. If no
//     DaemonSet of the agents wants a pod on the node by then, it is not: what the agent
//     left is removed. So it is where somebody deletes the Lease.
//   - While many agents of a zone miss renewals together, each has three periods: the API
//     server is short of CPU, or was away. See lease.Crowd.
//   - When most agents of a zone are silent, writes in it are slowed. When all agents
//     of all zones are, nothing is written, and each has a full period again after
//     that: then it is more likely the controller, or the API, that was cut off.
//   - An agent that returns writes its conditions itself; the controller has no part
//     in that.
//
// A Lease whose Node is gone is left to the garbage collector: the Node owns it.
//
// It needs the rights to list and watch Nodes, Leases, pods and DaemonSets (all but Nodes in
// the agents' namespace), and to patch nodes/status.
package liveness
