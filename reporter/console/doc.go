// Package console writes the agent's findings as lines: for people (time, state, reason,
// message, rule) or as JSON, one object per line.
//
// It only formats and writes. It keeps no state and decides nothing.
package console
