// Package client reports what a problem daemon finds to the Kernosis agent of its
// node, on the agent's socket (docs/reports.md):
//
//	c, err := client.New("/run/kernosis/report.sock", client.Source{
//		Name:       "gpu-monitor",
//		Conditions: []client.Condition{{Type: "GPUUnhealthy", Status: client.False}},
//	})
//	go c.Run(ctx)
//	defer c.Close()
//	c.SetCondition(client.Condition{Type: "GPUUnhealthy", Status: client.True, Reason: "XidError", Message: "…"})
//	c.Event(client.Event{Severity: client.Warn, Reason: "XidSeen", Message: "…"})
//
// A [Client] repeats the latest conditions at a heartbeat, so that the agent knows
// the daemon alive; gathers for a moment what changes; and sends again what did not
// arrive, with growing pauses. Events that there is no room for, that the agent
// refuses or that are not to be sent again are dropped and counted. An event that is
// sent twice, because its answer was lost, counts once with the agent.
//
// # Reports
//
// [Status] is the form of a report that a problem daemon sends to the agent:
// node-problem-detector's Status, with its names in JSON, and for how long it
// counts.
package client
