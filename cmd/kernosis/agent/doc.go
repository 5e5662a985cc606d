// Package agent is what runs on a node, with a cluster or without: it opens the sources, passes
// their events through the rules, and reports what follows.
//
//	source ──► pipeline: engine ──► journal ──► console, conditions, Events, metrics, page
//	                        └─────────────────► Diagnoses
//
// [Load] reads the settings of flags, environment and file into a [Config], and [Run] runs an agent
// until its context ends: parts are opened in the order of parts.open, each behind those that it
// needs, and closed in the opposite order.
//
// The commands read what an agent leaves in its state folder: the journal ([JournalDir]), the
// engine's state ([EngineFile]), mutes ([MutesFile]) and Diagnoses.
package agent
