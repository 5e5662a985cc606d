package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

// ProcStatus is from /proc/PID/status. Sizes are in bytes, and 0 for kernel threads and zombies.
type ProcStatus struct {
	Threads                    int
	TGID, UID                  uint32
	VMSize, RSS, PeakRSS       uint64
	AnonRSS, FileRSS, ShmemRSS uint64
	Swap                       uint64
	KernelThread               bool // no memory of its own
	CapEff                     Caps
	Killed                     bool // a SIGKILL is pending
}

// ParseProcStatus parses the text of /proc/PID/status. Fields whose key the kernel lacks are 0.
func ParseProcStatus(s string) (p ProcStatus, err error) {
	p.KernelThread = true
	found := false
	for line := range strings.Lines(s) {
		key, value, ok := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if !ok || len(fields) == 0 {
			continue
		}
		var n uint64
		switch key {
		case "CapEff":
			if n, err = strconv.ParseUint(fields[0], 16, 64); err != nil {
				return ProcStatus{}, fmt.Errorf("status: CapEff: %w", err)
			}
			p.CapEff, found = Caps(n), true
			continue
		case "SigPnd", "ShdPnd": // the thread's, the process'
			n, _ = strconv.ParseUint(fields[0], 16, 64)
			p.Killed = p.Killed || n&(1<<(9-1)) != 0
			continue
		}
		if n, err = strconv.ParseUint(fields[0], 10, 64); err != nil {
			continue // a word
		}
		size := n << 10 // kB, as all sizes here are
		switch key {
		case "Threads":
			p.Threads = int(min(n, 1<<31))
		case "Tgid":
			p.TGID = uint32(n)
		case "Uid":
			p.UID = uint32(n)
		case "VmSize":
			p.VMSize, p.KernelThread = size, false
		case "VmRSS":
			p.RSS = size
		case "VmHWM":
			p.PeakRSS = size
		case "RssAnon":
			p.AnonRSS = size
		case "RssFile":
			p.FileRSS = size
		case "RssShmem":
			p.ShmemRSS = size
		case "VmSwap":
			p.Swap = size
		default:
			continue
		}
		found = true
	}
	if !found {
		return ProcStatus{}, fmt.Errorf("status: %w", errSyntax)
	}
	return p, nil
}

// ProcStatus reads /proc/PID/status, without taking a lock of the process.
func (f FS) ProcStatus(pid int) (ProcStatus, error) {
	return parsed(f, procPath(pid, "status"), statusFile, ParseProcStatus)
}

// ProcLimit is one resource limit of a process.
type ProcLimit struct {
	Name       string // "open files"
	Soft, Hard string // a number, or "unlimited"
	Unit       string // "files", "bytes" …; empty if it has none
}

// ParseProcLimits reads the text of /proc/PID/limits.
func ParseProcLimits(s string) []ProcLimit {
	var limits []ProcLimit
	for line := range strings.Lines(s) {
		rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "Max ")
		// The columns are padded to 25, 20 and 20 characters, the first with "Max ".
		const name, value, most = 22, 21, 64
		if !ok || len(rest) < name+value || len(limits) == most {
			continue
		}
		l := ProcLimit{Name: strings.TrimSpace(rest[:name])}
		fields := strings.Fields(rest[name:])
		if len(fields) < 2 || l.Name == "" {
			continue
		}
		l.Soft, l.Hard = display.Safe(fields[0], 32), display.Safe(fields[1], 32)
		l.Name = display.Safe(l.Name, 32)
		if len(fields) > 2 {
			l.Unit = display.Safe(fields[2], 32)
		}
		limits = append(limits, l)
	}
	return limits
}

// ProcLimits reads /proc/PID/limits.
func (f FS) ProcLimits(pid int) ([]ProcLimit, error) {
	s, err := f.read(procPath(pid, "limits"), smallFile)
	return ParseProcLimits(s), err
}

// OOMScore returns the kernel's rating of a process as a victim (0 to 2000), and the adjustment set
// for the process (-1000 to 1000).
func (f FS) OOMScore(pid int) (score, adj int, err error) {
	read := func(file string) int {
		s, readErr := f.readValue(procPath(pid, file))
		n, parseErr := strconv.Atoi(s)
		if readErr == nil && parseErr != nil {
			readErr = fmt.Errorf("parse %s: %w", procPath(pid, file), parseErr)
		}
		err = errors.Join(err, readErr)
		return n
	}
	score, adj = read("oom_score"), read("oom_score_adj")
	return score, adj, err
}

// Executable returns the path of the program that a process runs, as the process sees it, escaped;
// empty for kernel threads. It needs the same permission as ptrace.
func (f FS) Executable(pid int) (string, error) {
	target, err := os.Readlink(f.Path(procPath(pid, "exe")))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return display.Safe(target, maxShownPath), err
}

// Caps is a set of capabilities: bit n is capability n.
type Caps uint64

// capNames returns the capabilities of include/uapi/linux/capability.h in order, without CAP_.
func capNames() []string {
	return []string{
		"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
		"SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
		"IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
		"SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
		"LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
		"WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
	}
}

// CapNumber returns the number of a capability ("CAP_BPF"), and false if the name is unknown.
func CapNumber(name string) (int, bool) {
	i := slices.Index(capNames(), strings.TrimPrefix(strings.ToUpper(name), "CAP_"))
	return i, i >= 0
}

// EffectiveCaps returns this process' effective capabilities. Seccomp or an LSM may forbid more.
func (f FS) EffectiveCaps() (Caps, error) {
	p, err := parsed(f, "/proc/self/status", statusFile, ParseProcStatus)
	return p.CapEff, err
}

// Missing returns the named capabilities ("CAP_BPF") that the set lacks, in the order given;
// unknown names are missing.
func (c Caps) Missing(names ...string) []string {
	var missing []string
	for _, name := range names {
		if i, ok := CapNumber(name); !ok || c&(1<<i) == 0 {
			missing = append(missing, name)
		}
	}
	return missing
}
