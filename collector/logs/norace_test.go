//go:build !race

package logs

const raceDetector = false
