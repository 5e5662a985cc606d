//go:build race

package logsource

// raceDetector: with it, a goroutine takes ten times as long or more.
const raceDetector = true
