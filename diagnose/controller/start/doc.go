// Package start makes Diagnoses of what the controller hears of: alerts, Events of the
// cluster, and times. It is a part of the controller's manager, and works in the process
// that leads.
//
//	alerts (package alerts) ─┐
//	Events ── matched ── pod ┼─► trigger.Engine ─► queue ─► Diagnoses
//	times ───────────────────┘        │
//	                                state ─► ConfigMap, behind what was made
//
// Which Diagnoses are wanted is the engine's to say. What it wants waits in a bounded queue
// until the API server has taken it; one that is there already counts as made. While the
// queue is full, alerts are to be sent again, and Events wait; when too many Events wait,
// they are dropped, counted and logged.
//
// What the engine remembers is kept in a ConfigMap, so that another process that comes to
// lead goes on with it. It is never ahead of what was made: whatever was lost with a process
// is wanted again, and named the same.
//
// It needs the rights to list and watch Triggers, Nodes and Events, to get pods, to create
// Diagnoses and ConfigMaps in the system namespace, to get and update its own ConfigMap,
// and to patch the status of Triggers.
package start
