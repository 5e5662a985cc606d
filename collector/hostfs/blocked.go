package hostfs

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

const (
	// maxStackFrames is MAX_STACK_TRACE_DEPTH of fs/proc/base.c.
	maxStackFrames = 64
	// maxFrame exceeds the length of a function, its offset and its module.
	maxFrame = 256
)

// ParseKernelStack parses the text of /proc/PID/stack: frames innermost first, as
// "ext4_sync_file+0x1f [ext4]", without the size of the function, like those of a BPF record.
// Before v4.15 each line began with an address.
func ParseKernelStack(s string) []string {
	var frames []string
	for line := range strings.Lines(s) {
		if len(frames) == maxStackFrames {
			break
		}
		_, frame, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "] ")
		if !ok || strings.HasPrefix(frame, "0xffffffffffffffff") { // the end mark of older kernels
			continue
		}
		call, module, _ := strings.Cut(frame, " ")
		call, _, _ = strings.Cut(call, "/") // the function's size
		if module != "" {
			call += " " + module
		}
		frames = append(frames, display.Safe(call, maxFrame))
	}
	return frames
}

// KernelStack returns the stack of a sleeping task; a running one has none. It needs CAP_SYS_ADMIN.
func (f FS) KernelStack(tid int) ([]string, error) {
	s, err := f.read(procPath(tid, "stack"), maxStackFrames*maxFrame)
	return ParseKernelStack(s), err
}

// WaitChannel returns the kernel function that a task sleeps in, or "" if it doesn't sleep or the
// kernel doesn't say. It needs the same permission as ptrace.
func (f FS) WaitChannel(tid int) (string, error) {
	s, err := f.readValue(procPath(tid, "wchan"))
	if err != nil || s == "0" {
		return "", err
	}
	return display.Safe(s, maxFrame), nil
}

// ParseExecStart parses se.exec_start from the text of /proc/PID/sched: when a task was last on its
// CPU, by the scheduler's clock of that CPU. These clocks omit suspends, time stolen by the
// hypervisor and time spent in interrupts, so only values of one clock are comparable.
func ParseExecStart(s string) (time.Duration, error) {
	for line := range strings.Lines(s) {
		key, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(key) != "se.exec_start" {
			continue
		}
		whole, fraction, _ := strings.Cut(strings.TrimSpace(value), ".")
		ms, err := strconv.ParseUint(whole, 10, 43) // 278 years in ns
		if err != nil {
			return 0, fmt.Errorf("sched: exec_start: %w", err)
		}
		// Six digits after the point: nanoseconds.
		ns, err := strconv.ParseUint(fraction, 10, 32)
		if err != nil || len(fraction) != 6 {
			return 0, fmt.Errorf("sched: exec_start: %w", errSyntax)
		}
		return time.Duration(ms)*time.Millisecond + time.Duration(ns), nil
	}
	return 0, fmt.Errorf("sched: no exec_start: %w", errSyntax)
}

// ExecStart returns se.exec_start of a task; see [ParseExecStart].
func (f FS) ExecStart(tid int) (time.Duration, error) {
	return parsed(f, procPath(tid, "sched"), statusFile, ParseExecStart)
}

// Syscall is the system call that a task is in.
type Syscall struct {
	Number int
	Args   [6]uint64
}

// ParseSyscall parses the text of /proc/PID/syscall. It returns false for a task in no system call
// (running, or interrupted by a fault) and for a 32-bit task, which has other numbers.
func ParseSyscall(s string) (Syscall, bool) {
	fields := strings.Fields(s)
	const number, args, sp, all = 0, 1, 7, 9
	if len(fields) != all {
		return Syscall{}, false
	}
	n, err := strconv.ParseInt(fields[number], 10, 32)
	if err != nil || n < 0 {
		return Syscall{}, false
	}
	var words [all]uint64
	for i := args; i < all; i++ {
		if words[i], err = strconv.ParseUint(strings.TrimPrefix(fields[i], "0x"), 16, 64); err != nil {
			return Syscall{}, false
		}
	}
	// The stack of a 64-bit process is never in the first 4 GiB: Linux maps it at the top, Go
	// allocates stacks at 0xc000000000, and stacks of other threads come from mmap.
	if words[sp]>>32 == 0 {
		return Syscall{}, false
	}
	return Syscall{Number: int(n), Args: [6]uint64(words[args:sp])}, true
}

// Syscall returns the system call that a task is in. It needs the same permission as ptrace.
func (f FS) Syscall(tid int) (Syscall, bool, error) {
	s, err := f.readValue(procPath(tid, "syscall"))
	call, ok := ParseSyscall(s)
	return call, ok, err
}
