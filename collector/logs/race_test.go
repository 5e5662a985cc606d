//go:build race

package logs

// raceDetector: sync.Pool forgets at random under it, and CEL and package regexp,
// which keep their memory in one, allocate anew.
const raceDetector = true
