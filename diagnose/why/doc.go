// Package why makes one answer of all that is known about a pod or a node: what is wrong,
// why, since when, by what evidence, what is excluded, and what to do.
//
//	journal ──► why/local   ──┐
//	                          ├─► Input ──► Build ──► Answer ──► text, JSON
//	API ──────► why/cluster ──┘
//
// Build is pure: the same Input gives the same Answer. It finds no causes; it puts in order
// what rules and diagnoses have found. What could not be read or seen makes an answer
// "blind", never "healthy".
package why
