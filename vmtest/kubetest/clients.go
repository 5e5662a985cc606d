package kubetest

import (
	"context"
	"io"
	"path/filepath"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testall"
)

// Kubectl returns the path of kubectl, of the version that the API server has. Where the
// cache does not have it, it is built.
func Kubectl(tb testing.TB) string {
	tb.Helper()
	return client(tb, "kubectl", KubectlProgram)
}

// Helm returns the path of helm, likewise.
func Helm(tb testing.TB) string {
	tb.Helper()
	return client(tb, "helm", HelmProgram)
}

// Helm3 returns the path of helm of the major version 3, likewise.
func Helm3(tb testing.TB) string {
	tb.Helper()
	return client(tb, "helm3", Helm3Program)
}

func client(tb testing.TB, name string, programs func(context.Context, io.Writer) (string, error)) string {
	tb.Helper()
	testall.Only(tb) // it takes a minute to build
	dir, err := programs(tb.Context(), tb.Output())
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(dir, name)
}
