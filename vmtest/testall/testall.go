// Package testall says what make test leaves to make test-all. make test is
// go test -short.
//
// It must not be imported by anything but tests.
package testall

import (
	"os"
	"strconv"
	"testing"
)

// CasesEnv names the environment variable with a factor for [Cases], such as 10 or 0.5.
const CasesEnv = "TEST_CASES"

// Only skips a test under -short. One reason for all keeps it one line of the summary.
func Only(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("left to make test-all")
	}
}

// Cases returns how many random cases a property test tries: n, under -short a tenth of
// it, times the factor in the environment; at least one.
func Cases(tb testing.TB, n int) int {
	tb.Helper()
	factor := 1.0
	if text := os.Getenv(CasesEnv); text != "" {
		var err error
		if factor, err = strconv.ParseFloat(text, 64); err != nil || factor <= 0 {
			tb.Fatalf("%s=%q: want a number above 0", CasesEnv, text)
		}
	}
	if testing.Short() {
		factor /= 10
	}
	return max(1, int(float64(n)*factor))
}
