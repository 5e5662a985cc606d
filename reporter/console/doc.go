// Package console writes what the agent sees as lines: for a person (time,
// what, who, why, which rule, state) or as JSON, one object a line.
//
// It formats and writes; it keeps no state and decides nothing.
package console
