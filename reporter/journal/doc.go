// Package journal is the agent's local memory: it records every event and the transitions the
// engine derived from it, in order, within a size limit, and complete even after a kill -9.
//
// A journal is a folder of segment files with one JSON entry per line. An entry is written by a
// single write(2), so that a killed agent leaves either the whole entry or a torn last line, which
// the next [Open] cuts off and counts. Because the engine is a pure function of its inputs, its
// state is rebuilt from the entries after a restart.
//
// The journal decides nothing: it only stores and returns entries.
package journal
