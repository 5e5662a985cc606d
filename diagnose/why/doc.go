// Package why combines all that is known about a pod or a node into one answer: what is wrong, why,
// since when, with what evidence, what is excluded, and what to do.
//
//	journal ──► why/local   ──┐
//	                          ├─► Input ──► Build ──► Answer ──► text, JSON
//	API ──────► why/cluster ──┘
//
// Build is pure: the same Input gives the same Answer. It finds no causes itself; it orders what
// rules and diagnoses have found. If something could not be read or observed, the answer is
// "blind", never "healthy".
package why
