//go:build !race

package logsource

const raceDetector = false
