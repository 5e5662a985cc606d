package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// called is the result of a call of a check program.
type called struct {
	stdout, stderr string
	code           int
}

// call runs the real command under a name, as node-problem-detector's
// configurations do.
func call(t *testing.T, env []string, name string, args ...string) called {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(link, args...)
	cmd.Env = append(append(os.Environ(), beKernosis+"=1"), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return called{stdout: stdout.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
}

// want compares exit code and message.
func (c called) want(t *testing.T, code int, message string) {
	t.Helper()
	if c.code != code || strings.TrimSpace(c.stdout) != message {
		t.Errorf("exit code %d, message %q\nwant %d, %q\nstderr: %s", c.code, c.stdout, code, message, c.stderr)
	}
}

func TestCalledAs(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"/usr/bin/kernosis version", "version"},
		{"kernosis", ""},
		{"/home/kubernetes/bin/health-checker --component=cri", "health-checker --component=cri"},
		{"log-counter", "log-counter"},
	} {
		if got := strings.Join(calledAs(strings.Fields(c.args)), " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.args, got, c.want)
		}
	}
	if got := calledAs(nil); got != nil {
		t.Errorf("%q", got)
	}
}

func TestCheckCommandsReportWrongUseInTheMessage(t *testing.T) {
	for _, c := range []struct {
		call []string
		want string
	}{
		{[]string{"kernosis", "health-checker", "--no-such-flag"}, "unknown flag: --no-such-flag"},
		{[]string{"health-checker", "--component=etcd"}, "the component specified is not supported. Supported components are: <kubelet/docker/cri/kube-proxy>"},
		{[]string{"health-checker", "--component=cri", "--crictl-path="}, "the crictl-path cannot be empty for cri component"},
		{[]string{"health-checker", "--component=cri", "--cri-socket-path="}, "the cri-socket-path cannot be empty for cri component"},
		{[]string{"health-checker", "--cooldown-time=-1s"}, "--cooldown-time -1s: want 0 or more"},
		{[]string{"health-checker", "--health-check-timeout=0"}, "--health-check-timeout 0s: want more than 0, or nothing is healthy"},
		{[]string{"health-checker", "--log-pattern=x"}, `invalid argument "x" for "--log-pattern" flag: "x": want COUNT:REGEX`},
		{[]string{"health-checker", "oops"}, `unexpected argument "oops"`},
		{[]string{"log-counter", "--pattern=x"}, "--lookback 0s: want more than 0, or nothing is counted"},
		{[]string{"log-counter", "--pattern=x", "--lookback=1m"}, "--journald-source or --log-path is required"},
		{[]string{"log-counter", "--pattern=x", "--lookback=1m", "--log-path=/no/such"}, "stat /no/such: no such file or directory"},
		{[]string{"kernosis", "log-counter", "--lookback=soon"}, `invalid argument "soon" for "--lookback" flag: time: invalid duration "soon"`},
	} {
		call(t, nil, c.call[0], c.call[1:]...).want(t, checkUnknown, c.want)
	}
}

// executables puts shell scripts into a folder, and returns it.
func executables(t *testing.T, scripts map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, body := range scripts {
		testenv.WriteProgram(t, filepath.Join(dir, name), "#!/bin/sh\n"+body)
	}
	return dir
}

// journalEntry is a line of a journal, logged some time ago.
type journalEntry struct {
	ago              time.Duration
	identifier, unit string
	text             string
}

// writeJournal creates a journal folder with real journal files.
func writeJournal(t *testing.T, entries ...journalEntry) (dir string) {
	t.Helper()
	if _, err := exec.LookPath("journalctl"); err != nil {
		t.Skip("journalctl is not there: a machine without systemd")
	}
	tool := ""
	for _, p := range []string{"/lib/systemd/systemd-journal-remote", "/usr/lib/systemd/systemd-journal-remote"} {
		if _, err := os.Stat(p); err == nil {
			tool = p
		}
	}
	if tool == "" {
		t.Skip("nothing writes journal files here (package systemd-journal-remote)")
	}
	dir = t.TempDir()
	const boot = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	var text strings.Builder
	for i, e := range entries {
		at := time.Now().Add(-e.ago).UnixMicro()
		fmt.Fprintf(&text, "__CURSOR=s=%s;i=%x;b=%s;m=%x;t=%x;x=%x\n", boot, i+1, boot, i+1, at, i+1)
		fmt.Fprintf(&text, "__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=%s\n", at, i+1, boot)
		fmt.Fprintf(&text, "_MACHINE_ID=%s\nSYSLOG_IDENTIFIER=%s\n_SYSTEMD_UNIT=%s\nMESSAGE=%s\n\n", strings.Repeat("c", 32), e.identifier, e.unit, e.text)
	}
	cmd := exec.Command(tool, "--output="+filepath.Join(dir, "test.journal"), "-")
	cmd.Stdin = strings.NewReader(text.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("systemd-journal-remote: %v\n%s", err, out)
	}
	return dir
}

// hostWithJournal creates a host root with journalctl, and with a journal in folder.
func hostWithJournal(t *testing.T, folder string, entries ...journalEntry) (root string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: changes the root of journalctl")
	}
	journal := writeJournal(t, entries...)
	tool, err := exec.LookPath("journalctl")
	if err != nil {
		t.Fatal(err)
	}
	root = t.TempDir()
	testenv.InstallProgram(t, root, tool, "/usr/bin/journalctl")
	// journalctl only reads the folder named by the machine ID.
	const machine = "cccccccccccccccccccccccccccccccc"
	below := filepath.Join(root, folder, machine)
	for _, dir := range []string{filepath.Dir(below), filepath.Join(root, "etc")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "etc/machine-id"), []byte(machine+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(journal, below); err != nil {
		t.Fatal(err)
	}
	return root
}
