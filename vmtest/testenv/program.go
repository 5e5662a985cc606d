package testenv

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// WriteProgram writes an executable file. The lock keeps a fork elsewhere in this process from
// inheriting it open for writing: running it would fail with ETXTBSY.
func WriteProgram(tb testing.TB, path, content string) {
	tb.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		tb.Fatal(err)
	}
}

// BuildProgram builds a command of this module, or of one that it requires, and returns its path.
// All test packages share the executable; go build leaves it alone if it is up to date.
func BuildProgram(tb testing.TB, pkg string) string {
	tb.Helper()
	path, err := BuiltProgram(pkg)
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// BuiltProgram is [BuildProgram] outside of a test.
func BuiltProgram(pkg string) (string, error) {
	built.Lock()
	defer built.Unlock()
	if path := built.paths[pkg]; path != "" {
		return path, nil
	}
	root, err := checkout()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := LockFile(context.Background(), filepath.Join(dir, "lock"), func() {})
	if err != nil {
		return "", err
	}
	defer lock.Close() // releases it
	path := filepath.Join(dir, filepath.Base(pkg))
	// Like make build, except for the version. With cgo, privileges could not be dropped.
	cmd := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	built.paths[pkg] = path
	return path, nil
}

// built are the programs that are known to be up to date.
var built = struct { //nolint:gochecknoglobals // of all tests of the process
	sync.Mutex
	paths map[string]string
}{paths: map[string]string{}}

// Checkout returns the root folder of the repository.
func Checkout(tb testing.TB) string {
	tb.Helper()
	root, err := checkout()
	if err != nil {
		tb.Fatal(err)
	}
	return root
}

func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no go.mod in %s or above", dir)
		}
	}
}

// FindProgram returns the path of a program that "make promtool" or "make prometheus" fetches, or
// of an installed one. It skips the test if there is neither.
func FindProgram(tb testing.TB, name string) string {
	tb.Helper()
	for _, path := range []string{filepath.Join(Checkout(tb), "bin", name), name} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	tb.Skipf("%s is neither in bin nor installed: make promtool prometheus", name)
	return ""
}

// Script writes a shell script to a temporary folder of the test and returns its path.
func Script(tb testing.TB, body string) (path string) {
	tb.Helper()
	path = filepath.Join(tb.TempDir(), "check.sh")
	WriteProgram(tb, path, "#!/bin/sh\n"+body)
	return path
}

// InstallProgram copies a program and the libraries it is linked with below root; the program gets
// the path path. It skips the test if the libraries can't be listed.
func InstallProgram(tb testing.TB, root, program, path string) {
	tb.Helper()
	libraries, err := exec.CommandContext(tb.Context(), "ldd", program).Output()
	if err != nil {
		tb.Skipf("ldd %s: %v", program, err)
	}
	files := map[string]string{path: program}
	for field := range strings.FieldsSeq(string(libraries)) {
		if filepath.IsAbs(field) {
			files[field] = field
		}
	}
	for to, from := range files {
		b, err := os.ReadFile(from)
		if err != nil {
			tb.Fatal(err)
		}
		to = filepath.Join(root, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			tb.Fatal(err)
		}
		WriteProgram(tb, to, string(b))
	}
}

// markEnv is set in the environment of processes started by a test with a mark.
const markEnv = "KERNOSIS_TEST_MARK"

// ProcessMark is in the environment of the processes that a test starts.
type ProcessMark struct {
	tb   testing.TB
	text []byte
}

// MarkProcesses marks the processes that a test starts from now on, by this process's environment.
// It kills the remaining ones at the end of the test.
func MarkProcesses(t *testing.T) ProcessMark {
	t.Helper()
	value := t.Name() + strconv.Itoa(os.Getpid())
	t.Setenv(markEnv, value)
	m := ProcessMark{tb: t, text: []byte(markEnv + "=" + value + "\x00")}
	t.Cleanup(m.Kill)
	return m
}

// Count returns how many other processes with the mark are running, excluding zombies.
func (m ProcessMark) Count() int { return len(m.pids()) }

// Kill kills the processes with the mark.
func (m ProcessMark) Kill() {
	for _, pid := range m.pids() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // an error means that it has ended
	}
}

func (m ProcessMark) pids() (pids []int) {
	m.tb.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		m.tb.Fatal(err)
	}
	for _, path := range all {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(append(text, 0), m.text) {
			pids = append(pids, pid)
		}
	}
	return pids
}
