package hostfs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

// maxCommandLine is the largest COMMAND_LINE_SIZE of any architecture.
const maxCommandLine = 4 << 10

// KernelCommandLine returns the kernel's command line, without secrets, escaped.
func (f FS) KernelCommandLine() (string, error) {
	s, err := f.read("/proc/cmdline", 2*maxCommandLine)
	return display.Safe(strings.TrimSpace(RedactText(s)), maxCommandLine), err
}

// LoadAverage is the content of /proc/loadavg.
type LoadAverage struct {
	One, Five, Fifteen float64 // tasks that run, are runnable, or sleep uninterruptibly
	Tasks              uint64
}

// ParseLoadAverage parses "0.27 0.60 1.02 1/148 4711".
func ParseLoadAverage(s string) (l LoadAverage, err error) {
	fields := strings.Fields(s)
	if len(fields) < 4 {
		return l, fmt.Errorf("loadavg: %w", errSyntax)
	}
	for i, into := range []*float64{&l.One, &l.Five, &l.Fifteen} {
		if *into, err = strconv.ParseFloat(fields[i], 64); err != nil {
			return LoadAverage{}, fmt.Errorf("loadavg: %w", err)
		}
	}
	_, tasks, _ := strings.Cut(fields[3], "/")
	if l.Tasks, err = strconv.ParseUint(tasks, 10, 64); err != nil {
		return LoadAverage{}, fmt.Errorf("loadavg: %w", err)
	}
	return l, nil
}

// LoadAverage reads /proc/loadavg.
func (f FS) LoadAverage() (LoadAverage, error) {
	return parsed(f, "/proc/loadavg", smallFile, ParseLoadAverage)
}

// Taint is one reason why the kernel is tainted.
type Taint struct {
	Letter byte
	Reason string
}

// Taints decodes /proc/sys/kernel/tainted according to
// Documentation/admin-guide/tainted-kernels.rst. An unknown bit has the letter '?'.
func Taints(mask uint64) []Taint {
	known := []Taint{
		{'P', "proprietary module"}, {'F', "module was force loaded"}, {'S', "out of specification system"},
		{'R', "module was force unloaded"}, {'M', "machine check exception"}, {'B', "bad page"},
		{'U', "requested by a process"}, {'D', "kernel has died: oops or BUG"}, {'A', "ACPI table overridden"},
		{'W', "warning"}, {'C', "staging driver"}, {'I', "firmware bug worked around"}, {'O', "out-of-tree module"},
		{'E', "unsigned module"}, {'L', "soft lockup"}, {'K', "live patched"}, {'X', "auxiliary, distribution-specific"},
		{'T', "randomised structures"}, {'N', "in-kernel test"}, {'J', "fwctl debug access"},
	}
	var taints []Taint
	for bit := range 64 {
		if mask&(1<<bit) == 0 {
			continue
		}
		if bit < len(known) {
			taints = append(taints, known[bit])
		} else {
			taints = append(taints, Taint{'?', "bit " + strconv.Itoa(bit)})
		}
	}
	return taints
}

// Sysctl returns the value of a kernel parameter ("kernel.hung_task_timeout_secs",
// or with slashes where a part has dots in it: "net/ipv4/conf/eth0.1/rp_filter").
func (f FS) Sysctl(name string) (string, error) {
	path := name
	if !strings.Contains(name, "/") {
		path = strings.ReplaceAll(name, ".", "/")
	}
	path, err := below(path)
	if err != nil || path == "/" {
		return "", fmt.Errorf("sysctl %q: %w", name, ErrPath)
	}
	v, err := f.readValue("/proc/sys" + path)
	if err != nil {
		return "", fmt.Errorf("sysctl %s: %w", name, err)
	}
	return v, nil
}

// LockedDown reports whether the kernel is in lockdown mode "confidentiality", which prevents
// tracing programs from reading kernel memory.
func (f FS) LockedDown() bool {
	s, err := f.readValue("/sys/kernel/security/lockdown")
	return err == nil && strings.Contains(s, "[confidentiality]")
}
