package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestLogCounterJournal(t *testing.T) {
	testenv.OnlyInTestAll(t)
	needUptime(t, 10*time.Minute)
	const started, stopped = "Started kubelet.service - Kubernetes kubelet.", "Stopping kubelet.service - Kubernetes kubelet..."
	dir := writeJournal(t,
		journalEntry{9 * time.Minute, "systemd", "init.scope", started}, // before the lookback
		journalEntry{4 * time.Minute, "systemd", "init.scope", started},
		journalEntry{4 * time.Minute, "systemd", "init.scope", stopped},
		journalEntry{3 * time.Minute, "other", "init.scope", started}, // another identifier
		journalEntry{2 * time.Minute, "systemd", "init.scope", started},
		journalEntry{time.Minute, "systemd", "init.scope", started},
		journalEntry{time.Minute, "systemd", "init.scope", started + " Really."}, // does not match to the end
		journalEntry{-time.Minute, "systemd", "init.scope", started},             // in the future
	)
	// As in node-problem-detector's systemd-monitor-counter.json.
	pattern := "--pattern=Started (Kubernetes kubelet|kubelet.service|kubelet.service - Kubernetes kubelet)."
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"as often", []string{"--count=3"}, checkProblem, "Found 3 matching logs, which meets the threshold of 3"},
		{"more often", nil, checkProblem, "Found 3 matching logs, which meets the threshold of 1"},
		{"less often", []string{"--count=4"}, checkOK, ""},
		{"reverted", []string{"--count=2", "--revert-pattern=Stopping (Kubernetes kubelet|kubelet.service - Kubernetes kubelet)\\.\\.\\."}, checkProblem, "Found 2 matching logs, which meets the threshold of 2"},
		{"reverted below", []string{"--count=3", "--revert-pattern=Stopping .*"}, checkOK, ""},
		{"delay of this boot", []string{"--delay=5000h"}, checkOK, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"--journald-source=systemd", "--log-path=" + dir, "--lookback=5m", pattern}, c.args...)
			call(t, nil, "log-counter", args...).want(t, c.code, c.want)
		})
	}
}

// needUptime skips on a machine that has just booted, because earlier entries don't count.
func needUptime(t *testing.T, d time.Duration) {
	t.Helper()
	if hostfs.BootTime() < d {
		t.Skipf("up for less than %v", d)
	}
}

func TestLogCounterSpansLines(t *testing.T) {
	needUptime(t, time.Minute)
	dir := writeJournal(t,
		journalEntry{30 * time.Second, "kernel", "", "Kill process 1 (a) score 2 or sacrifice child"},
		journalEntry{29 * time.Second, "kernel", "", "Killed process 1 (a) total-vm:1kB"},
		journalEntry{28 * time.Second, "kernel", "", "Killed process 2 (b) total-vm:1kB"},
	)
	call(t, nil, "log-counter", "--journald-source=kernel", "--log-path="+dir, "--lookback=1m",
		"--pattern=Kill process \\d+ (.+) score \\d+ or sacrifice child\\nKilled process \\d+ (.+) total-vm:\\d+kB",
	).want(t, checkProblem, "Found 1 matching logs, which meets the threshold of 1")
}

func TestLogCounterUnreadableJournal(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "broken.journal"), []byte("no journal"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := call(t, nil, "log-counter", "--journald-source=kernel", "--log-path="+dir, "--lookback=1m", "--pattern=x")
	// journalctl skips a broken file with a note; what matters is that no match
	// is reported.
	if got.code == checkProblem {
		t.Errorf("%+v", got)
	}
}

func TestLogCounterFile(t *testing.T) {
	needUptime(t, 10*time.Minute)
	path := filepath.Join(t.TempDir(), "messages")
	line := func(ago time.Duration, text string) string {
		return time.Now().Add(-ago).Format(time.RFC3339) + " node kernel: " + text + "\n"
	}
	old := line(9*time.Minute, "I/O error") + line(4*time.Minute, "I/O error")
	current := line(3*time.Minute, "I/O error") + line(2*time.Minute, "all well") + strings.TrimSuffix(line(time.Minute, "I/O error"), "\n")
	for name, content := range map[string]string{path + ".1": old, path: current} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--log-path=" + path, "--lookback=5m", "--pattern=I/O error", "--message=kernel: (.*)"}
	call(t, nil, "log-counter", args...).want(t, checkUnknown, "--timestamp and --timestamp-format are required for a file: they say where a line has its time")
	args = append(args, "--timestamp=^\\S+", "--timestamp-format="+time.RFC3339)
	call(t, nil, "log-counter", args...).want(t, checkProblem, "Found 3 matching logs, which meets the threshold of 1")
	// The node's syslog daemon now writes times in another format: the count is unknown, not 0.
	args = append(args, "--timestamp=^.{15}", "--timestamp-format="+time.Stamp)
	call(t, nil, "log-counter", args...).want(t, checkUnknown, fmt.Sprintf("log file %s: 5 lines, none with a time in the format %q", path, time.Stamp))
}

// With lost lines, too few matches are not "no problem".
func TestLogCounterOfALogWithLosses(t *testing.T) {
	needUptime(t, 10*time.Minute)
	path := filepath.Join(t.TempDir(), "messages")
	line := time.Now().Add(-time.Minute).Format(time.RFC3339) + " I/O error\nno time\n"
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--log-path=" + path, "--lookback=5m", "--pattern=.*I/O error", "--timestamp=^\\S+", "--timestamp-format=" + time.RFC3339, "--message=.*"}
	call(t, nil, "log-counter", append(args, "--count=2")...).want(t, checkOK, "")
	if err := os.WriteFile(path+".1.gz", []byte("damaged on disk"), 0o600); err != nil {
		t.Fatal(err)
	}
	call(t, nil, "log-counter", append(args, "--count=2")...).want(t, checkUnknown, "found 1 matching logs, but the log lost lines (rotated)")
	call(t, nil, "log-counter", args...).want(t, checkProblem, "Found 1 matching logs, which meets the threshold of 1")
}

// In a pod the node's files are below the agent's host root, and so is journalctl.
func TestLogCounterOnHost(t *testing.T) {
	needUptime(t, 10*time.Minute)
	root := hostWithJournal(t, "/run/log/journal", journalEntry{time.Minute, "kernel", "", "I/O error"})
	env := []string{agent.HostRootEnv + "=" + root}
	found := "Found 1 matching logs, which meets the threshold of 1"
	args := []string{"--journald-source=kernel", "--lookback=5m", "--pattern=I/O error"}
	call(t, env, "log-counter", args...).want(t, checkProblem, found)
	call(t, env, "log-counter", append(args, "--log-path=/var/log/journal")...).want(t, checkProblem, found)
	call(t, env, "log-counter", append(args, "--log-path=/run/log/journal")...).want(t, checkProblem, found)
	call(t, env, "log-counter", append(args, "--log-path=/run/log/no-journal")...).
		want(t, checkUnknown, "stat /run/log/no-journal: no such file or directory")

	for _, dir := range []string{"/var/log", "/data"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	line := time.Now().Add(-time.Minute).Format(time.RFC3339) + " I/O error\n"
	if err := os.WriteFile(filepath.Join(root, "/data/messages"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/data/messages", filepath.Join(root, "/var/log/messages")); err != nil {
		t.Fatal(err)
	}
	args = []string{"--lookback=5m", "--pattern=.*I/O error", "--timestamp=^\\S+", "--timestamp-format=" + time.RFC3339, "--message=.*"}
	call(t, env, "log-counter", append(args, "--log-path=/data/messages")...).want(t, checkProblem, found)
	call(t, env, "log-counter", append(args, "--log-path=/var/log/messages")...).want(t, checkProblem, found)
}

// TestLogCounterKmsg counts records of this machine's kernel.
func TestLogCounterKmsg(t *testing.T) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("the kernel's log can't be read: %v", err)
	}
	defer unix.Close(fd)
	records, buf := 0, make([]byte, 8<<10)
	for {
		_, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EPIPE) {
			continue
		} else if err != nil {
			break
		}
		records++
	}
	got := call(t, nil, "log-counter", "--log-path=/dev/kmsg", "--lookback=100000h", "--pattern=.*")
	var found, threshold int
	if _, err := fmt.Sscanf(got.stdout, "Found %d matching logs, which meets the threshold of %d", &found, &threshold); err != nil {
		t.Fatalf("%+v: %v", got, err)
	}
	if found < records*9/10 || found > records+1000 || records == 0 {
		t.Errorf("%d records, found %d", records, found)
	}
	quiet := []string{"--log-path=/dev/kmsg", "--lookback=100000h", "--pattern=no such text, surely", "--v=5"}
	call(t, nil, "log-counter", quiet...).want(t, checkOK, "")
	// A container may have its own /dev/kmsg, and none below the host's root.
	call(t, []string{agent.HostRootEnv + "=" + t.TempDir()}, "log-counter", quiet...).want(t, checkOK, "")
}
