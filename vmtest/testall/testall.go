// Package testall marks tests that take too long for make test, and that make test-all
// runs. make test is go test -short.
//
// It must not be imported by anything but tests.
package testall

import "testing"

// Only skips a test under -short. One reason for all keeps it one line of the summary.
func Only(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("left to make test-all")
	}
}
