package vmtest

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// TestHWError injects hardware errors into the kernel, one row after the other, and reads the
// kernel's log too, which reports the same errors. Then it waits until all have ended.
func TestHWError(t *testing.T) {
	// Longer than an emulated machine under load takes between two errors.
	rules := quickRules(t, "hwerror", "clearAfter", "20s")
	a := startShipped(t, "--log", "kmsg", "--shipped-rules", "hwerror,klog-hardware,klog-pcie,klog-nic,source", "--rules-dir", rules)
	t.Cleanup(func() { noLoss(t, a.Entries()) })
	for _, row := range []struct {
		name    string
		provoke func(*testing.T, *agenttest.Agent) *hwFault
	}{
		{"machine-check", machineChecks},
		{"memory-failure", poisonedPages},
		{"pcie-corrected", func(t *testing.T, a *agenttest.Agent) *hwFault { return pcieErrors(t, a, true) }},
		{"pcie-uncorrected", func(t *testing.T, a *agenttest.Agent) *hwFault { return pcieErrors(t, a, false) }},
	} {
		t.Run(row.name, func(t *testing.T) { row.provoke(t, a).reported(t, a) })
	}
}

// hwFault describes how provoked errors must be reported.
type hwFault struct {
	rule, reason string
	line         string         // what the kernel's log says of them
	counts       map[string]int // errors by the problem's group
	message      string         // how each problem's begins
}

// hwEvents returns the events of errors of a kind and severity.
func hwEvents(entries []journal.Entry, what, severity string) (found []*event.Event) {
	for _, ev := range agenttest.Events(entries, event.HWError) {
		if ev.HWError.What == what && ev.HWError.Severity == severity {
			found = append(found, ev)
		}
	}
	return found
}

// provoke calls inject for each error, waiting for its event in between, because the kernel merges
// errors that it has not handled yet. check gets each event.
func provoke(t *testing.T, a *agenttest.Agent, what, severity string, inject func(i int), check func(i int, d *event.HWErrorData)) {
	t.Helper()
	for i := range faults {
		inject(i)
		a.WaitIn(t, fmt.Sprintf("event of %s error %d", what, i), 30*time.Second, func(entries []journal.Entry) bool {
			return len(hwEvents(entries, what, severity)) > i
		})
	}
	events := hwEvents(a.Entries(), what, severity)
	if len(events) != faults {
		t.Errorf("%d errors gave %d events", faults, len(events))
	}
	for i, ev := range events {
		check(i, ev.HWError)
	}
	t.Logf("%+v", *events[0].HWError)
}

// reported waits, in parallel with other rows, until the errors have ended, and fails the test
// unless each group was one problem. Usually the event begins it. For some pages the kernel logs a line
// ("Sending SIGBUS") long before the event, and the line begins it. Such a problem ends after an hour,
// for which the test does not wait.
func (f *hwFault) reported(t *testing.T, a *agenttest.Agent) {
	t.Helper()
	t.Parallel()
	var last map[string]problem.Problem
	entries := a.WaitIn(t, "end of "+f.reason, 90*time.Second, func(entries []journal.Entry) bool {
		last = map[string]problem.Problem{}
		for _, e := range entries {
			for _, tr := range e.Transitions {
				if p := tr.Problem; p != nil && p.Reason == f.reason {
					last[p.Group] = *p
				}
			}
		}
		for group := range f.counts {
			if p, ok := last[group]; !ok || p.Rule == f.rule && p.State != problem.Resolved {
				return false
			}
		}
		return true
	})
	ofEvents := 0
	for group, p := range last {
		switch {
		case f.counts[group] == 0:
			t.Errorf("a problem of another group: %+v", p)
		case p.Rule != f.rule:
			t.Logf("by its line: %+v", p)
			continue
		case int(p.Count) != f.counts[group] || !strings.HasPrefix(p.Message, f.message):
			t.Errorf("problem %+v, want %d errors, %q", p, f.counts[group], f.message)
		}
		ofEvents++
	}
	if ofEvents == 0 {
		t.Error("no problem was reported by the event")
	}
	for _, e := range entries {
		for _, tr := range e.Transitions {
			if p := tr.Problem; p != nil && p.Reason == f.reason && p.Rule != last[p.Group].Rule {
				t.Errorf("a second problem: %+v", *p)
			}
		}
	}
	lines := 0
	for _, ev := range agenttest.Events(entries, event.Log) {
		if strings.Contains(ev.Log.Text, f.line) {
			lines++
		}
	}
	if lines == 0 {
		t.Errorf("no line %q was read, so that nothing shows that it makes no second problem", f.line)
	}
}

// machineChecks injects corrected errors of a cache, as the CPU's banks would report them.
func machineChecks(t *testing.T, a *agenttest.Agent) *hwFault {
	t.Helper()
	module(t, "CONFIG_X86_MCE_INJECT", "mce-inject")
	const status, bank, cpu = 0x9000000000000151, 4, 1
	set := func(file, value string) {
		if err := os.WriteFile(filepath.Join("/sys/kernel/debug/mce-inject", file), []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set("flags", "sw")
	provoke(t, a, event.HWMachineCheck, event.HWCorrected, func(int) {
		set("cpu", strconv.Itoa(cpu))
		set("status", fmt.Sprintf("%#x", uint64(status)))
		set("bank", strconv.Itoa(bank)) // injects, and resets what was set
	}, func(i int, d *event.HWErrorData) {
		if d.CPU != cpu || d.Bank != bank || d.Register != fmt.Sprintf("%016x", uint64(status)) {
			t.Errorf("error %d: %+v", i, *d)
		}
	})
	return &hwFault{
		rule: "machine-check-event", reason: "MachineCheck", line: "[Hardware Error]: Machine check events logged",
		counts: map[string]int{"": faults}, message: "CPU 1 reports a machine check (corrected) in bank 4, status 9000000000000151",
	}
}

// poisonedPages makes the kernel treat pages of processes as broken. It may kill those.
func poisonedPages(t *testing.T, a *agenttest.Agent) *hwFault {
	t.Helper()
	needConfig(t, "CONFIG_MEMORY_FAILURE")
	f := &hwFault{rule: "memory-failure-event", reason: "MemoryFailure", line: ": recovery action for ", counts: map[string]int{}, message: "page 0x"}
	var frames []string
	provoke(t, a, event.HWPage, event.HWUncorrected, func(i int) {
		out, err := exec.Command(os.Args[0], poisonPage).Output()
		if len(out) == 0 {
			t.Fatal(err)
		}
		frames = append(frames, string(out))
		f.counts[frames[i]]++
	}, func(i int, d *event.HWErrorData) {
		if d.Page != frames[i] || d.Detail == "" || strings.HasPrefix(d.Detail, "type ") || d.Result != "Recovered" {
			t.Errorf("error %d of page %s: %+v", i, frames[i], *d)
		}
	})
	return f
}

// poisonPage is the argument that makes this binary call runPoisonPage.
const poisonPage = "poison-page"

// runPoisonPage prints the frame number of a page of its own and declares the page broken.
func runPoisonPage() error {
	memory, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	memory[0] = 1
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return err
	}
	defer f.Close()
	var entry [8]byte
	page := uintptr(unsafe.Pointer(unsafe.SliceData(memory))) / uintptr(os.Getpagesize())
	if _, err := f.ReadAt(entry[:], int64(page)*8); err != nil {
		return err
	}
	fmt.Printf("%#x", binary.NativeEndian.Uint64(entry[:])&(1<<55-1))
	return unix.Madvise(memory, unix.MADV_HWPOISON)
}

// pcieErrors injects errors of a port.
func pcieErrors(t *testing.T, a *agenttest.Agent, corrected bool) *hwFault {
	t.Helper()
	module(t, "CONFIG_PCIEAER_INJECT", "aer_inject")
	ports, err := filepath.Glob("/sys/bus/pci/devices/*/aer_dev_correctable")
	if err != nil || len(ports) == 0 {
		t.Fatalf("no port reports errors (%v): see vm.yaml", err)
	}
	port := filepath.Base(filepath.Dir(ports[0]))
	const badTLP, completionTimeout = 1 << 6, 1 << 14
	severity, detail, status := event.HWUncorrected, "Completion Timeout", uint64(completionTimeout)
	f := &hwFault{rule: "pcie-error-event", reason: "PCIeError", line: "Bus Error: severity=Uncorrect", message: "the PCIe device " + port + " has an uncorrectable error (Non-Fatal): " + detail}
	if corrected {
		severity, detail, status = event.HWCorrected, "Bad TLP", badTLP
		f = &hwFault{rule: "pcie-corrected-event", reason: "PCIeErrorCorrected", line: "Bus Error: severity=Correct", message: "the PCIe link of " + port + " corrected an error: " + detail}
	}
	f.counts = map[string]int{port: faults}
	provoke(t, a, event.HWPCIe, severity, func(int) { injectAER(t, port, uint32(status), corrected) }, func(i int, d *event.HWErrorData) {
		if d.Part != port || d.Detail != detail || d.Register != fmt.Sprintf("%08x", status) {
			t.Errorf("error %d: %+v", i, *d)
		}
	})
	return f
}

// injectAER writes a struct aer_error_inj (drivers/pci/pcie/aer_inject.c).
func injectAER(t *testing.T, device string, status uint32, corrected bool) {
	t.Helper()
	var domain uint32
	var bus, dev, fn uint8
	if _, err := fmt.Sscanf(device, "%x:%x:%x.%x", &domain, &bus, &dev, &fn); err != nil {
		t.Fatal(err)
	}
	inj := make([]byte, 32)
	inj[0], inj[1], inj[2] = bus, dev, fn
	at := 4 // uncor_status
	if corrected {
		at = 8 // cor_status
	}
	binary.NativeEndian.PutUint32(inj[at:], status)
	binary.NativeEndian.PutUint32(inj[28:], domain)
	if err := os.WriteFile("/dev/aer_inject", inj, 0o600); err != nil {
		t.Fatal(err)
	}
}
