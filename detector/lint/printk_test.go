package lint_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kernosis/kernosis/detector/lint"
)

// TestFormats reads the output of strings(1) for a kernel, and lines of the printk index.
func TestFormats(t *testing.T) {
	const kernel = `%s error, dev %s, sector %llu op 0x%x:(%s) flags 0x%x phys_seg %u prio class %u
controller is down; will reset: CSTS=0x%x, PCI_STATUS=0x%hx
%s: %s failed
100%% of %pg is bad
tx hang
ICMPv6: NA: %pM advertised our address %pI6c on %s!
<3,c> mm/oom_kill.c:961 __oom_kill_process "%s: Killed process %d (%s) total-vm:%lukB\n"
<6> a.c:1 f "first line of two\nsecond line of two\n"
`
	lines := map[string]bool{
		"I/O error, dev sda, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2": true,
		"I/O error, dev sda, sector 8": false, // older kernels' form
		"I/O error, dev sda, sector a op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2":    false,
		"nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10":    true,
		"nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10 or": false,
		"mount: /dev/sda failed":               false, // the format prints anything
		"100% of sda1 is bad":                  true,
		"vmxnet3 0000:0b:00.0 ens192: tx hang": true,
		"ICMPv6: NA: 52:54:00:12:34:56 advertised our address fe80::1 on eth0!": true,
		"Memory cgroup out of memory: Killed process 7 (a b) total-vm:12kB":     true,
		"second line of two": true,
	}
	var all []string
	for l := range lines {
		all = append(all, l)
	}
	f, err := lint.ReadFormats(strings.NewReader(kernel), all)
	if err != nil {
		t.Fatal(err)
	}
	for l, want := range lines {
		if f.Print(l) != want {
			t.Errorf("%q: printed %v", l, !want)
		}
	}
}

// TestOfKernel checks that a pattern is reported if the kernel has no format for its lines.
func TestOfKernel(t *testing.T) {
	in := lint.Input{Rules: []lint.Rule{
		{File: "r.yaml", Line: 1, Reason: "TaskHung", Expr: `^INFO: task .* blocked for more than \d+ seconds`, Kernel: true},
		{File: "r.yaml", Line: 2, Reason: "OOMKilling", Expr: `^Out of memory: Killed process`, Kernel: true},
	}}
	found, err := lint.OfKernel(in, shipped(t), strings.NewReader("INFO: task %s:%d blocked for more than %ld seconds.\n"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, f := range found {
		lines = append(lines, f.Line)
	}
	if !slices.Equal(lines, []int{2}) {
		t.Errorf("%v", found)
	}
}

// Any file gives formats, and a line of fixed text is printed if the file has it.
func FuzzReadFormats(f *testing.F) {
	f.Add([]byte("%s error, dev %s\ntx hang\n<6> a.c:1 f \"first line of two\\nsecond line of two\\n\"\n"), "vmxnet3 0000:0b:00.0 ens192: tx hang")
	f.Add([]byte("\xff%s controller is down; will reset: CSTS=0x%x\n"), "controller is down; will reset: CSTS=0x10")
	f.Add([]byte("\x013Out of memory: Killed process %d (%s) total-vm:%lukB\n%*ph%%\n"), "Out of memory: Killed process 7 (a b) total-vm:12kB")
	f.Fuzz(func(t *testing.T, kernel []byte, line string) {
		formats, err := lint.ReadFormats(bytes.NewReader(kernel), []string{line})
		if err != nil {
			t.Fatal(err)
		}
		formats.Print(line)
		if line = strings.TrimSpace(line); len(line) < 6 || strings.ContainsAny(line, "%\n\x01") || strings.HasPrefix(line, "<") || !utf8.ValidString(line) {
			return
		}
		formats, err = lint.ReadFormats(bytes.NewReader(slices.Concat(kernel, []byte("\n"+line+"\n"))), []string{line})
		if err != nil || !formats.Print(line) {
			t.Errorf("%q is not printed, %v", line, err)
		}
	})
}
