//go:build !race

package logpattern_test

const raceDetector = false
