// Package journal is the agent's local memory: every event with what the
// engine made of it, in order, bounded in size, and complete up to the moment
// of a kill -9.
//
// It is a folder of segment files with one JSON entry a line. An entry is
// written by a single write(2), so that a killed agent leaves either the whole
// entry or a torn last line, which the next [Open] cuts off and counts. Because
// the engine is a pure function of its inputs, entries are also what rebuilds
// it after a restart.
//
// The journal must not decide anything: it stores and hands back.
package journal
