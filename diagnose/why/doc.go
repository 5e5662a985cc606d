// Package why combines all facts about a pod or a node into one answer: what is wrong, why, since
// when, with which evidence, which causes are excluded, and what to do.
//
//	journal ──► why/local   ──┐
//	                          ├─► Input ──► Build ──► Answer ──► text, JSON
//	API ──────► why/cluster ──┘
//
// Build is pure: the same Input gives the same Answer. It finds no causes itself; it ranks those
// that rules and diagnoses have found. If something could not be read or observed, the answer is
// "blind", never "healthy".
package why
