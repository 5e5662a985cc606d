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
// So a repeated creation gets AlreadyExists from the API server, and it is harmless if an agent
// or controller returns a Diagnosis again after a restart. Save the state only once the Diagnoses
// returned before are created or stored elsewhere: then, after a crash in between, the engine
// returns the same Diagnoses again and none is lost.
//
// The agent passes problems to the engine, the controller everything else.
package trigger
