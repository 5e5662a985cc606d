// Package events reports problems and changed conditions to the cluster as core/v1
// Events: on the pod that the fault hit, and on the Node.
//
// Occurrences of one rule on one object are a series: one Event, whose name is derived from the
// series and whose count is absolute. So sending it again changes nothing, and no Event is lost
// or duplicated if the agent is killed or the API server is down. The number of occurrences
// always equals the counts of the Events on the Node plus the dropped ones; an Event on a pod
// reports the same occurrences again, as far as the budget allows.
//
//	journal entry → Feed → table (fold) → sender → API server
//	                         └→ events.json, from time to time
//
// The table follows from the journal's entries alone; recorded acknowledgements are only a hint.
// The package decides nothing about problems: it does not report what the engine doesn't announce
// (pending, muted, hidden by its cause).
//
// # The journal
//
// The sender reads the journal's entries from a [Feed], without gaps or repetitions.
//
// The journal is the write-ahead log: an entry is in it before anything is sent. A sender folds
// entries into its own state. From time to time it saves that state with the sequence number of
// the last entry folded. After a kill -9 it loads the state and gets the entries after that
// number again. So the state must follow from the entries alone, and sending again must be
// harmless (deterministic names, absolute counts).
package events
