//go:build race

package logs

// raceDetector: with it, sync.Pool drops objects at random, so CEL and package regexp, which pool
// their memory, allocate.
const raceDetector = true
