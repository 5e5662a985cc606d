// Package outbox is what durable senders to the API server stand on: a [Feed] of
// the journal's entries that misses none and repeats none.
//
// The journal is the write-ahead log: an entry is in it before anybody is told of
// it. A sender folds entries into a state of its own, and from time to time writes
// that state with the sequence number up to which it has folded. After a kill -9
// it reads the state and gets the entries behind that number again. So the state
// must follow from the entries alone, and what is sent must bear to be sent again
// (deterministic names, absolute counts).
//
// The package knows nothing of Kubernetes and decides nothing.
package outbox
