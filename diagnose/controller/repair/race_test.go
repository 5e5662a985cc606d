//go:build race

package repair

// raceDetector: what one goroutine does takes ten times as long and more under it.
const raceDetector = true
