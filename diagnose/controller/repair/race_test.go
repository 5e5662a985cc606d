//go:build race

package repair

// raceDetector: under it, single-goroutine work takes ten times as long and more.
const raceDetector = true
