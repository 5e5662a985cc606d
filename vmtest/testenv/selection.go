package testenv

import (
	"os"
	"strconv"
	"testing"
)

// CasesEnv names the environment variable with a factor for [Cases], such as 10 or 0.5.
const CasesEnv = "TEST_CASES"

// OnlyInTestAll skips a test that only make test-all runs: make test runs go test -short. All
// skipped tests share one reason and so one line of the summary.
func OnlyInTestAll(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("left to make test-all")
	}
}

// Cases returns how many random cases a property test should try: n, or a tenth of it under -short,
// times the factor in the environment; at least one.
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
