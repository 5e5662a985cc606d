// Package trigger says which Diagnoses are to be made: for problems of the node's own
// detector, Prometheus alerts, Events of the cluster, and times.
//
//	Trigger ── Compile ──► Matcher ─┐
//	problem, alert, Event, time ────┴─► Engine ──► Diagnoses to be made
//
// [Compile] reports everything that is wrong with a Trigger, each with its field. An
// [Engine] takes what happens, with the time at which it does, and returns the Diagnoses
// that are wanted. It is pure: it has no clock, no API client and no goroutine, and what
// it remembers is a plain [State].
//
// The name of a Diagnosis follows from its trigger, its subject and the beginning of the
// episode. So whoever makes the same one again learns from the API server that it exists,
// and what an agent or a controller returns after a restart does no harm. Save the state
// only when what was returned before is made or kept elsewhere: then a crash in between
// makes the same Diagnoses wanted again, and none is forgotten.
//
// The agent feeds it problems, the controller everything else.
package trigger
