// Package runner executes diagnoses: it runs the operations of a graph, one at a time,
// as the graph's state machine says.
//
// What is true of a run whatever happens:
//
//   - An operation is given the diagnosis' parameters and the results of the nodes that
//     its node declares as dependences, and nothing else.
//   - A checkpoint on the local disk says before an operation that it begins, and what
//     came of those before. Collect and Check operations that were interrupted run again;
//     a Remediate that was is Unknown, is never run again, and ends the run.
//   - A Remediate runs only if the [Gate] says so, its intent was reported, and the checkpoint
//     is on the disk. Without a gate none runs.
//   - An operation is bounded in time, tries and output. One that panics has failed; one
//     that does not end is left behind, and how many of these there may be is bounded.
//
// The package talks to no API server: the [Gate], the intent and the [Report] are how its
// caller does. docs/diagnose.md has the semantics for people.
package runner
