//go:build race

package logsource

// raceDetector: what one goroutine does takes ten times as long and more under it.
const raceDetector = true
