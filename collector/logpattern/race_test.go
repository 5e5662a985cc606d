//go:build race

package logpattern_test

// raceDetector: sync.Pool forgets at random under it, and package regexp, which
// keeps its memory in one, allocates anew.
const raceDetector = true
