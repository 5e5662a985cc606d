//go:build !race

package detector_test

const raceDetector = false
