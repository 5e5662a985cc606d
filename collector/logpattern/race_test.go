//go:build race

package logpattern_test

// raceDetector: with it, sync.Pool drops objects at random, so package regexp, which pools its
// memory, allocates.
const raceDetector = true
