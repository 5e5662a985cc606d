package bpf

import (
	"structs"
)

// StemFSError: a filesystem detected an error of its own, or shut itself down.
const StemFSError = "fserror"

// FSErrorHooks returns the hooks of [StemFSError] for a filesystem, by its name in
// /proc/filesystems. If the filesystem is a module that is loaded later, call [Loaded.Attach] then.
// While attached, tracepoints keep the module loaded. Kprobes do not: call [Loaded.Detach] once it was
// unloaded, because they never fire again.
func FSErrorHooks(fsType string) []string {
	switch fsType {
	case "ext4":
		return []string{"ext4_error", "ext4_shutdown"}
	case "xfs":
		return []string{"xfs_force_shutdown"}
	}
	return nil
}

func fserror() Stem {
	return Stem{
		Name:   StemFSError,
		object: _FserrorBytes,
		spec:   LoadFserror,
		hooks: []hook{
			{name: "ext4_error", optional: true, variants: []variant{
				{program: FserrorProgExt4ErrorRaw, attach: rawTracepoint("ext4_error")},
			}},
			{name: "ext4_shutdown", optional: true, variants: []variant{
				{program: FserrorProgExt4DownRaw, attach: rawTracepoint("ext4_shutdown")},
			}},
			{name: "xfs_force_shutdown", optional: true, variants: []variant{
				{program: FserrorProgXfsDownRaw, attach: rawTracepoint("xfs_force_shutdown")},           // v6.5
				{program: FserrorProgXfsLogDownKp, attach: kprobe("xlog_force_shutdown"), mayDie: true}, // since v5.16
				{program: FserrorProgXfsDownKp, attach: kprobe("xfs_log_force_umount"), mayDie: true},   // until v5.15
			}},
		},
	}
}

// What happened to a filesystem (enum kn_fserror_what).
const (
	FSErrorFound    = 1
	FSErrorShutdown = 2
)

// FSError is struct kn_fserror. Dev is the kernel's own dev_t: 12 bits major, 20 bits minor.
type FSError struct {
	_             structs.HostLayout
	H             Header
	Task          Task // the task that found it; a kernel thread in write-back
	Dev           uint32
	Line          uint32 // in the kernel's source; 0: not reported
	What          uint32
	ShutdownFlags uint32 // the filesystem's own flags
	FSType        [16]byte
	ID            [32]byte // usually the device's name
	Function      [64]byte // kernel function that detected the error
	Memory        Chain
	Default       Chain
}
