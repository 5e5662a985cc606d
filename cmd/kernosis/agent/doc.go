// Package agent implements the process that runs on a node, with or without a cluster: it opens the
// sources, passes their events through the rules, and reports the results.
//
//	source ──► pipeline: engine ──► journal ──► console, conditions, Events, metrics, page
//	                        └─────────────────► Diagnoses
//
// [Load] reads the settings of flags, environment and file into a [Config], and [Run] runs an agent
// until its context ends. parts.open opens each part after those it depends on; they are closed in
// reverse order.
//
// The commands read an agent's state folder: the journal ([JournalDir]), the
// engine's state ([EngineFile]), mutes ([MutesFile]) and Diagnoses.
package agent
