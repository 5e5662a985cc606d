// Package runner executes diagnoses: it runs the operations of a graph, one at a time, in the order
// of the graph's state machine.
//
// Guarantees of a run:
//
//   - An operation gets the diagnosis' parameters and the results of the nodes that
//     its node declares as dependences, and nothing else.
//   - Before an operation begins, a checkpoint on the local disk records its beginning and the
//     outcomes so far. Collect and Check operations that were interrupted run again; an interrupted
//     Remediate becomes Unknown, never runs again, and ends the run.
//   - A Remediate runs only if the [Gate] allows it, its intent is recorded, and the
//     checkpoint is on disk. Without a gate none runs.
//   - Time, attempts and output of an operation are bounded. An operation that panics
//     fails; one that does not end is abandoned, and the number of these is bounded.
//
// The package sends no requests to the API server: its caller does, through the [Gate], the intent
// and the [Report]. See docs/diagnose.md for users' documentation.
package runner
