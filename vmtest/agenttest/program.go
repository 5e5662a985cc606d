package agenttest

import (
	"testing"

	"github.com/kernosis/kernosis/vmtest/testprogram"
)

// Program returns the path of kernosis, built from this checkout.
func Program(tb testing.TB) string {
	tb.Helper()
	return testprogram.Build(tb, "github.com/kernosis/kernosis/cmd/kernosis")
}
