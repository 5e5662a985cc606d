// Package events reports problems and changed conditions to the cluster as core/v1
// Events: on the pod that the fault hit, and on the Node.
//
// Occurrences of one rule on one object are a series: one Event, whose name follows
// from the series and whose count is absolute. So sending it again changes nothing,
// and no Event is lost or duplicated if the agent is killed or the API server is
// down. The number of occurrences always equals the counts of the Events on the Node
// plus what is counted as dropped; an Event on a pod reports the same occurrences
// again, as far as the budget allows.
//
//	journal entry → Feed → table (fold) → sender → API server
//	                         └→ events.json, from time to time
//
// The table follows from the journal's entries alone; what has been acknowledged is
// only a hint. The package decides nothing about problems: what the engine doesn't
// announce (pending, muted, hidden by its cause) it doesn't report.
//
// # The journal
//
// The sender reads the journal's entries from a [Feed], which misses none and repeats none.
//
// The journal is the write-ahead log: an entry is in it before anything is sent. A
// sender folds entries into a state of its own, and from time to time writes that
// state with the sequence number up to which it has folded. After a kill -9 it reads
// the state and gets the entries behind that number again. So the state must follow
// from the entries alone, and what is sent must bear to be sent again (deterministic
// names, absolute counts).
package events
