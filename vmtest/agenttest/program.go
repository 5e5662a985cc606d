package agenttest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kernosis/kernosis/vmtest/lockfile"
)

// Program returns the path of kernosis, built from this checkout. All test packages share
// the file; go build leaves it alone while it is up to date.
func Program(tb testing.TB) string {
	tb.Helper()
	path, err := program()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

var program = sync.OnceValues(func() (path string, err error) {
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(module)))
	dir := filepath.Join(root, "bin", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := lockfile.Lock(context.Background(), filepath.Join(dir, "lock"), func() {})
	if err != nil {
		return "", err
	}
	defer lock.Close() // gives it back
	path = filepath.Join(dir, "kernosis")
	// As make build does it, but for the version. With cgo no rights could be given up.
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-o", path, "./cmd/kernosis")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build kernosis: %w\n%s", err, out)
	}
	return path, nil
})
