package agenttest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
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
	root, err := checkout()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close() // gives it back
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return "", os.NewSyscallError("flock", err)
	}
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

// checkout returns the folder of go.mod, which is this one or one above.
func checkout() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above %s", wd)
		}
	}
}
