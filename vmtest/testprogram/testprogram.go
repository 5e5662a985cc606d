// Package testprogram writes programs that tests run, and finds the processes of those that
// are left. Only tests may import it.
package testprogram

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Write writes an executable file. The lock keeps a fork elsewhere in this process from
// inheriting it open for writing: running it would fail with ETXTBSY.
func Write(tb testing.TB, path, content string) {
	tb.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		tb.Fatal(err)
	}
}

// Script writes a shell script into a folder of the test's own and returns its path.
func Script(tb testing.TB, body string) (path string) {
	tb.Helper()
	path = filepath.Join(tb.TempDir(), "check.sh")
	Write(tb, path, "#!/bin/sh\n"+body)
	return path
}

// Install copies a program with the libraries that it is linked with below root, as path. The
// test is skipped where they can't be listed.
func Install(tb testing.TB, root, program, path string) {
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
		Write(tb, to, string(b))
	}
}

// markEnv is in the environment of what a test with a mark starts.
const markEnv = "KERNOSIS_TEST_MARK"

// Mark marks the processes that a test starts from now on. It kills those that are left at
// the test's end.
type Mark struct {
	tb   testing.TB
	text []byte
}

// NewMark sets the mark in this process's environment until the end of the test.
func NewMark(t *testing.T) Mark {
	t.Helper()
	value := t.Name() + strconv.Itoa(os.Getpid())
	t.Setenv(markEnv, value)
	m := Mark{tb: t, text: []byte(markEnv + "=" + value + "\x00")}
	t.Cleanup(m.Kill)
	return m
}

// Count returns how many processes with the mark run, without this one and zombies.
func (m Mark) Count() int { return len(m.pids()) }

// Kill kills the processes with the mark.
func (m Mark) Kill() {
	for _, pid := range m.pids() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // or it has ended
	}
}

func (m Mark) pids() (pids []int) {
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
