// Package trigger decides which Diagnoses to create: for problems of the node's own detector,
// Prometheus alerts, Events of the cluster, and schedules.
//
//	Trigger ── Compile ──► Matcher ─┐
//	problem, alert, Event, time ────┴─► Engine ──► Diagnoses to be made
//
// [Compile] reports all mistakes in a Trigger, each with its field. An [Engine] receives what
// happens, with its time, and returns the wanted Diagnoses. It is pure: it has no clock, no API
// client and no goroutine, and its memory is a plain [State].
//
// The name of a Diagnosis follows from its trigger, its subject and the beginning of the episode.
// So a repeated creation gets AlreadyExists from the API server, and what an agent or controller
// returns again after a restart does no harm. Save the state only once the Diagnoses returned
// before are created or stored elsewhere: then, after a crash in between, the same Diagnoses are
// wanted again and none is lost.
//
// The agent feeds problems to it, the controller everything else.
package trigger
