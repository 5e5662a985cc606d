package kubetest

import (
	"path/filepath"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Kubectl returns the path of kubectl, in the API server's version. It is built unless it is in the
// cache.
func Kubectl(tb testing.TB) string { tb.Helper(); return client(tb, "kubectl") }

// Helm returns the path of helm, built in the same way.
func Helm(tb testing.TB) string { tb.Helper(); return client(tb, "helm") }

// Helm3 returns the path of helm 3, built in the same way.
func Helm3(tb testing.TB) string { tb.Helper(); return client(tb, "helm3") }

func client(tb testing.TB, name string) string {
	tb.Helper()
	testenv.OnlyInTestAll(tb) // building takes a minute
	dir, err := Programs(tb.Context(), tb.Output(), name)
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(dir, name)
}
