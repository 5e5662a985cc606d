package kubetest

import (
	"context"
	"io"
	"path/filepath"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testall"
)

// Kubectl returns the path of kubectl, in the API server's version. It is built unless it is in the
// cache.
func Kubectl(tb testing.TB) string {
	tb.Helper()
	return client(tb, "kubectl", KubectlProgram)
}

// Helm returns the path of helm, built in the same way.
func Helm(tb testing.TB) string {
	tb.Helper()
	return client(tb, "helm", HelmProgram)
}

// Helm3 returns the path of helm 3, built in the same way.
func Helm3(tb testing.TB) string {
	tb.Helper()
	return client(tb, "helm3", Helm3Program)
}

func client(tb testing.TB, name string, programs func(context.Context, io.Writer) (string, error)) string {
	tb.Helper()
	testall.Only(tb) // building takes a minute
	dir, err := programs(tb.Context(), tb.Output())
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(dir, name)
}
