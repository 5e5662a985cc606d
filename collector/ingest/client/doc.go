// Package client reports the findings of a problem daemon to the Kernosis agent of its node, on
// the agent's socket (docs/reports.md):
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
// A [Client] repeats the latest conditions at a heartbeat, so that the agent knows that the daemon
// is alive. It collects changes for a moment before it sends them, and retries failed reports with
// growing pauses. Events for which there is no room, that the agent refuses or that are not to be
// retried are dropped and counted. An event that is sent twice because its answer was lost counts
// only once at the agent.
//
// # Reports
//
// [Status] is a report that a problem daemon sends to the agent: node-problem-detector's Status,
// with its JSON names, and for how long it is valid.
package client
