package monitoringtest

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Program returns the path of a program that "make promtool" or "make prometheus" fetches, or of an
// installed one.
func Program(tb testing.TB, name string) string {
	tb.Helper()
	for _, path := range []string{filepath.Join(Root(tb), "bin", name), name} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	tb.Skipf("%s is neither in bin nor installed: make promtool prometheus", name)
	return ""
}
