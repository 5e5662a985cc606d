// Package events reports problems and changed conditions to the cluster as core/v1 Events: on the pod
// that the fault hit, and on the Node.
//
// Occurrences of one rule on one object are a series with one Event. Its name is derived from the
// series, and its count is absolute. So sending it again changes nothing, and no Event is lost or
// duplicated if the agent is killed or the API server is down. The number of occurrences always equals
// the counts of the Events on the Node plus the dropped ones; an Event on a pod reports the same
// occurrences again, as far as the budget allows.
//
//	journal entry → Feed → table (fold) → sender → API server
//	                         └→ events.json, from time to time
//
// The journal is the write-ahead log: an entry is in it before anything is sent. A [Feed] delivers its
// entries without gaps or repetitions, and the table is saved with the number of the last entry folded.
// After a kill -9 the saved table is loaded and gets the later entries again. So the table depends only
// on the entries; recorded acknowledgements are only a hint.
//
// The package decides nothing about problems: it does not report what the engine doesn't announce
// (pending, muted, hidden by its cause).
package events
