package main

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
)

const formatRules = `apiVersion: rules.kernosis.io/v1
rules:
- {name: hung, events: [log], logs: [kernel], pattern: '^INFO: task .* blocked for more than \d+ seconds', reason: TaskHung, message: "${log.text}"}
- {name: killed, events: [log], logs: [kernel], pattern: '^Out of memory: Killed process', reason: OOMKilling, message: "${log.text}"}
`

// TestLintFormats: the command compares patterns with a file of format strings, and with a
// folder of files such as printk/index.
func TestLintFormats(t *testing.T) {
	dir := t.TempDir()
	rules := write(t, dir, "rules.yaml", formatRules)
	const hung = `<3> kernel/hung_task.c:205 check_hung_task "INFO: task %s:%d blocked for more than %ld seconds.\n"` + "\n"
	const killed = `<3,c> mm/oom_kill.c:961 __oom_kill_process "%s: Killed process %d (%s) total-vm:%lukB, anon-rss:%lukB, file-rss:%lukB, shmem-rss:%lukB, UID:%u pgtables:%lukB oom_score_adj:%hd\n"` + "\n"
	one := write(t, dir, "one.txt", hung)
	write(t, dir, "index/vmlinux", hung)
	write(t, dir, "index/other", killed)

	out, code, err := runLint(t, rules, "--formats", one)
	if code != output.ExitFailed || err != nil || !strings.HasPrefix(out, rules+":4: ") || strings.Count(out, "[not-of-this-kernel]") != 1 {
		t.Errorf("a file without the kill's format: exit %d: %v\n%s", code, err, out)
	}
	if out, code, err := runLint(t, rules, "--formats", dir+"/index"); code != output.ExitOK || err != nil || out != "" {
		t.Errorf("a folder with both formats: exit %d: %v\n%s", code, err, out)
	}
	if _, code, err := runLint(t, rules, "--formats", dir+"/none"); code != output.ExitInput || err == nil || !strings.Contains(err.Error(), "--formats: ") {
		t.Errorf("no such file: exit %d: %v", code, err)
	}
}

// TestLintFormatsOfThisKernel: the running kernel prints the line of an OOM kill, so the
// pattern for it is accepted.
func TestLintFormatsOfThisKernel(t *testing.T) {
	const index = "/sys/kernel/debug/printk/index"
	if _, err := os.ReadDir(index); errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		t.Skipf("no index of this kernel's messages (CONFIG_PRINTK_INDEX, debugfs, root): %v", err)
	}
	rules := write(t, t.TempDir(), "rules.yaml", formatRules)
	out, code, err := runLint(t, rules, "--formats", index)
	if err != nil || code == output.ExitInput || strings.Contains(out, rules+":4: ") {
		t.Errorf("exit %d: %v\n%s", code, err, out)
	}
}
