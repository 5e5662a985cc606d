// Package panic_test panics the kernel of a virtual machine, and checks what the agent reports after
// the reboot.
package panic_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// TestPanic runs twice in its machine: before the panic, and after the reboot.
func TestPanic(t *testing.T) {
	comm, err := os.ReadFile("/proc/1/comm")
	if err != nil {
		t.Fatal(err)
	}
	if first := strings.TrimSpace(string(comm)); first != "vmrun" {
		t.Skipf("runs in a machine of vmrun's; the first process of this one is %s", first)
	}
	// All that the kernel has printed, so that the record has several parts.
	if err := unix.Mount("pstore", "/sys/fs/pstore", "pstore", 0, "kmsg_bytes=65536"); err != nil {
		t.Fatal(err)
	}
	records, err := filepath.Glob("/sys/fs/pstore/dmesg-*")
	if err != nil {
		t.Fatal(err)
	}
	if len(records) == 0 {
		crash(t)
	}
	t.Run("reported-once", func(t *testing.T) { reportedOnce(t, records) })
}

// lines is how many lines are written before the panic: about 40 KiB.
const lines = 400

// crash panics the kernel, behind lines that a process has written.
func crash(t *testing.T) {
	backend, err := os.ReadFile("/sys/module/pstore/parameters/backend")
	if err != nil || strings.TrimSpace(string(backend)) != "erst" {
		t.Fatalf("records of a panic would be kept by %q (%v)", backend, err)
	}
	if err := os.WriteFile("/proc/sys/kernel/printk_devkmsg", []byte("on\n"), 0o600); err != nil { // no rate limit
		t.Fatal(err)
	}
	kmsg, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer kmsg.Close()
	for i := range lines {
		text := fmt.Sprintf("line %d %s", i, strings.Repeat("x", 80))
		if i == lines/2 {
			text = "Kernel panic - not syncing: written by a process"
		}
		if _, err := kmsg.WriteString("<6>" + text); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0o200); err != nil {
		t.Fatal(err)
	}
	t.Fatal("the kernel did not panic")
}

// reportedOnce checks that the panic is reported with its reason and the lines before it, once, and
// that the agent reports nothing else.
func reportedOnce(t *testing.T, records []string) {
	t.Logf("records: %q", records)
	if len(records) < 2 {
		t.Errorf("%d parts: too few to show that they are joined", len(records))
	}
	a := agenttest.New(t, "../../bin/kernosis", "--log", "kmsg", "--log", "crash")
	began := 0
	for range 2 {
		a.Start()
		a.Wait("log/crash", time.Minute, func(entries []journal.Entry) bool {
			for _, e := range entries[began:] {
				if e.Event != nil && e.Event.SourceUp != nil && e.Event.SourceUp.Stem == "log/crash" {
					if s := e.Event.SourceUp; !s.Up {
						t.Fatalf("it can't be read: %s", s.Reason)
					}
					return true
				}
			}
			return false
		})
		a.Stop()
		began = len(a.Entries())
	}
	var fired []*problem.Problem
	var evidence string // of the last one
	for _, e := range a.Entries() {
		for _, tr := range e.Transitions {
			if tr.Problem != nil && tr.Problem.State == problem.Firing && tr.Problem.Condition == "" {
				fired, evidence = append(fired, tr.Problem), e.Event.Log.Text
			}
		}
	}
	if len(fired) != 1 {
		t.Fatalf("%d problems: %+v", len(fired), fired)
	}
	p := fired[0]
	if p.Reason != "KernelPanic" || p.Count != 1 || !strings.HasPrefix(p.Message, "the kernel panicked at 20") ||
		!strings.HasSuffix(p.Message, ", before this boot: sysrq triggered crash") {
		t.Errorf("reported: %+v", p)
	}
	if n := strings.Count(evidence, "\n"); n < 50 || !strings.Contains(evidence, fmt.Sprintf("\nline %d ", lines-1)) ||
		!strings.HasSuffix(evidence, "\nKernel panic - not syncing: sysrq triggered crash") {
		t.Errorf("the lines before it: %q", evidence)
	}
	for _, e := range agenttest.Events(a.Entries(), event.Lost) {
		t.Errorf("lost: %+v", *e.Lost)
	}
}
