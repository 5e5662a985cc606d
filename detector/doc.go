// Package detector decides, by rules, what the facts of a node mean: which
// [event.Event] is a problem, whether it is temporary or permanent, when it is
// over, and what state each node condition has.
//
// It stands between the sources, which make Events, and the reporter and
// diagnose, which consume [problem.Transition] values. Rules are data: YAML
// files with CEL expressions, read by [Load], checked as a whole, and run by
// an [Engine].
//
//   - A [RuleSet] is immutable and may be shared by any number of goroutines.
//   - An [Engine] is a pure state machine over (event, now): it starts no
//     goroutine, reads no clock and does no I/O, so that a replay is exact, a
//     snapshot small and a fuzzer at home. It is not safe for concurrent use.
//   - [Watch] is the only part that touches the outside: it reports when a rule
//     directory changed.
//
// Beside events and problems the package imports no other part of Kernosis.
package detector
