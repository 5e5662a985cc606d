//go:build race

package detector_test

// raceDetector is true under the race detector. There sync.Pool drops items at random, so CEL and
// package regexp, which reuse memory through pools, allocate more.
const raceDetector = true
