package hostfs

import (
	"slices"
	"strings"
)

// Caps is a set of capabilities: bit n is capability n.
type Caps uint64

// capNames returns the capabilities of include/uapi/linux/capability.h in order,
// without CAP_.
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

// EffectiveCaps returns the effective capabilities of this process. A seccomp filter or LSM may
// forbid more.
func (f FS) EffectiveCaps() (Caps, error) {
	s, err := f.read("/proc/self/status", statusFile)
	if err != nil {
		return 0, err
	}
	p, err := ParseProcStatus(s)
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
