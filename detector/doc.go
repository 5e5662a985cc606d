// Package detector evaluates the events of a node by rules. It decides which
// [event.Event] is a problem, whether it is temporary or permanent, when it
// ends, and what state each node condition has.
//
// It takes Events from the sources and returns [problem.Transition] values,
// which the reporter and diagnose consume. Rules are data: YAML files with CEL
// expressions, read and checked by [Load] and run by an [Engine].
//
//   - A [RuleSet] is immutable and may be shared by any number of goroutines.
//   - An [Engine] is a pure state machine over (event, now): it starts no
//     goroutine, reads no clock and does no I/O, so that replays are exact,
//     snapshots small and fuzzing easy. It is not safe for concurrent use.
//   - Only [LoadDir], [LoadFile] and [Contents] read from disk.
//
// Of the other parts of Kernosis, the package imports only collector and detector/problem.
package detector
