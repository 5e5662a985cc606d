package bpf

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"structs"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// StemSockFail: a connection to a watched target failed.
const StemSockFail = "sockfail"

func sockfail() Stem {
	stateTracepoint := variant{program: SockfailProgStateRaw, attach: rawTracepoint("inet_sock_set_state")}
	return Stem{
		Name:   StemSockFail,
		object: _SockfailBytes,
		spec:   LoadSockfail,
		configure: func(spec *ebpf.CollectionSpec, k *Kernel) error {
			return spec.Variables[SockfailVarDropReasons].Set(faultReasons(k))
		},
		hooks: []hook{
			// The hooks on demand are attached while there are targets: without them only connections
			// that are reset have a cost.
			//
			// Every connection of the machine passes the tracepoint ten times, and the kernel may
			// skip its program (docs/adr/0016).
			{name: hookState, onDemand: true, variants: []variant{
				{program: SockfailProgFollowOps, attach: cgroupRoot(ebpf.AttachCGroupSockOps)},
				stateTracepoint,
			}},
			{name: hookStateToo, optional: true, onDemand: true, adds: true, variants: []variant{stateTracepoint}},
			{name: "reset", variants: []variant{
				{program: SockfailProgResetRaw, attach: rawTracepoint("tcp_receive_reset")},
			}},
			// These run for every dropped packet or connect(). What resend reports early is also
			// reported at the connection's end; the sweep finds what return4 and return6 report.
			{name: "resend", optional: true, onDemand: true, adds: true, variants: []variant{
				{program: SockfailProgResendRaw, attach: rawTracepoint("tcp_retransmit_skb")},
			}},
			{name: "error", optional: true, onDemand: true, adds: true, variants: []variant{
				{program: SockfailProgErrorRaw, attach: rawTracepoint("inet_sk_error_report"), usable: hasTracepoint("inet_sk_error_report", 1)}, // v5.14
				{program: SockfailProgErrorFentry, attach: tracing()},
				{program: SockfailProgErrorKp, attach: kprobe("sock_queue_err_skb")},
			}},
			{name: "drop", optional: true, onDemand: true, adds: true, variants: []variant{
				{program: SockfailProgDropRaw, attach: rawTracepoint("kfree_skb"), usable: hasTracepoint("kfree_skb", 3)}, // the reason: v5.17
			}},
			{name: "icmp", optional: true, onDemand: true, adds: true, variants: []variant{
				{program: SockfailProgIcmpRaw, attach: rawTracepoint("icmp_send"), usable: hasTracepoint("icmp_send", 3)}, // v6.0
			}},
			{name: hookConnect4, optional: true, onDemand: true, variants: []variant{
				{program: SockfailProgConnect4Cg, attach: cgroupRoot(ebpf.AttachCGroupInet4Connect)},
			}},
			{name: "connect6", optional: true, onDemand: true, variants: []variant{
				{program: SockfailProgConnect6Cg, attach: cgroupRoot(ebpf.AttachCGroupInet6Connect)},
			}},
			{name: hookReturn4, optional: true, onDemand: true, adds: true, variants: []variant{
				{program: SockfailProgReturn4Fexit, attach: tracing()},
				{program: SockfailProgReturn4Kp, attach: kretprobe("tcp_v4_connect")},
			}},
			{name: hookReturn6, optional: true, onDemand: true, adds: true, variants: []variant{
				{program: SockfailProgReturn6Fexit, attach: tracing()},
				{program: SockfailProgReturn6Kp, attach: kretprobe("tcp_v6_connect")},
			}},
		},
		unattached: []string{SockfailProgSweep},
		shares:     true,
		demands: func(l *Loaded) (bool, error) {
			c, err := l.sockConfig()
			return c.Classes != 0, err // there are targets, maybe those of an earlier run
		},
	}
}

const (
	hookState    = "state"
	hookStateToo = "state_too"
	hookConnect4 = "connect4"
	hookReturn4  = "return4"
	hookReturn6  = "return6"
)

func hasTracepoint(name string, args int) func(*Kernel) error {
	return func(k *Kernel) error {
		have, ok := k.TracepointArgs(name)
		switch {
		case !ok:
			return fmt.Errorf("tracepoint %s", name)
		case len(have) < args:
			return fmt.Errorf("tracepoint %s has %d arguments, need %d", name, len(have), args)
		}
		return nil
	}
}

func kretprobe(function string) attacher {
	entry := kprobe(function)
	return func(p *ebpf.Program) (link.Link, error) {
		lk, err := link.Kretprobe(function, p, nil)
		if err != nil {
			// kprobe's error says whether the kernel has kprobes at all.
			if probe, entryErr := entry(p); entryErr == nil {
				_ = probe.Close()
			} else if errors.Is(entryErr, errAbsent) {
				return nil, entryErr
			}
			return nil, err
		}
		return lk, nil
	}
}

// cgroupRoot attaches to the root of the cgroup v2 hierarchy. Every task is in that hierarchy, even
// where v1 has all the controllers.
func cgroupRoot(attach ebpf.AttachType) attacher {
	return func(p *ebpf.Program) (link.Link, error) {
		root, err := openCgroupRoot()
		if err != nil {
			return nil, err
		}
		defer root.Close()
		path := fmt.Sprintf("/proc/self/fd/%d", root.Fd())
		return link.AttachCgroup(link.CgroupOptions{Path: path, Attach: attach, Program: p})
	}
}

// cgroupRootID is the inode and the kernfs id of a hierarchy's root.
const cgroupRootID = 1

// openCgroupRoot opens the root of the cgroup v2 hierarchy; the caller must close it. In a container
// with its own cgroup namespace, "/" is only a part of the hierarchy, in its own mounts and in those
// of init, so the inode decides whether a folder is the root. openCgroupRoot opens the root by its
// handle, which works from any part (CAP_DAC_READ_SEARCH), or else through init's mounts
// (CAP_SYS_PTRACE).
func openCgroupRoot() (*os.File, error) {
	part := false
	for _, at := range []struct{ prefix, pid string }{{"", "self"}, {"/proc/1/root", "1"}} {
		mounts, err := pidMounts(at.pid)
		if err != nil {
			continue
		}
		for _, m := range mounts {
			dir, err := os.Open(filepath.Join(at.prefix, m.Mountpoint))
			if err != nil {
				continue
			}
			if isCgroupRoot(dir) {
				return dir, nil
			}
			part = true
			root, err := openRootOf(dir)
			_ = dir.Close()
			if err == nil {
				return root, nil
			}
		}
	}
	if part {
		return nil, fmt.Errorf("%w: can't open the root of the cgroup v2 hierarchy, and this process's own control group covers no other process (needs CAP_DAC_READ_SEARCH, or CAP_SYS_PTRACE and the host's PID namespace)", errForbidden)
	}
	return nil, fmt.Errorf("%w: a mounted cgroup v2 hierarchy", errAbsent)
}

// openRootOf opens the root of the hierarchy that a folder belongs to.
func openRootOf(part *os.File) (*os.File, error) {
	const fileIDKernfs = 0xfe // FILEID_KERNFS (v5.5, 33c5ac917554)
	handle := unix.NewFileHandle(fileIDKernfs, binary.NativeEndian.AppendUint64(nil, cgroupRootID))
	fd, err := unix.OpenByHandleAt(int(part.Fd()), handle, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("open_by_handle_at", err)
	}
	root := os.NewFile(uintptr(fd), "/")
	if !isCgroupRoot(root) {
		return nil, errors.Join(fmt.Errorf("handle %d is not a root", cgroupRootID), root.Close())
	}
	return root, nil
}

func isCgroupRoot(dir *os.File) bool {
	var fs unix.Statfs_t
	var st unix.Stat_t
	return unix.Fstatfs(int(dir.Fd()), &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC &&
		unix.Fstat(int(dir.Fd()), &st) == nil && st.Ino == cgroupRootID
}

func pidMounts(pid string) ([]*mountinfo.Info, error) {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "mountinfo"))
	if err != nil {
		return nil, err
	}
	return cgroupMounts(text)
}

// cgroupMounts returns the mounts of the cgroup v2 hierarchy. The library fails at a line longer
// than bufio.Scanner allows (an overlay of hundreds of layers), so it gets only the lines needed.
func cgroupMounts(text []byte) ([]*mountinfo.Info, error) {
	var lines []byte
	for line := range bytes.Lines(text) {
		if len(line) < bufio.MaxScanTokenSize && bytes.Contains(line, []byte(" - cgroup2 ")) {
			lines = append(lines, line...)
		}
	}
	return mountinfo.GetMountsFromReader(bytes.NewReader(lines), mountinfo.FSTypeFilter("cgroup2"))
}

// isFault reports whether a drop reason (without SKB_DROP_REASON_) is a fault: one that does not
// occur in healthy connections, and for which the end of the connection gives no better report.
// Reasons that later kernels add count as faults, except TCP's own.
func isFault(reason string) bool {
	switch reason {
	case "MAX", "SKB_NOT_DROPPED_YET", "SKB_CONSUMED",
		"NOT_SPECIFIED", // also the code that gives no reason for normal frees
		"NO_SOCKET",     // the SYN of a refused connection
		"SOCKET_CLOSE", "SOCKET_RCVBUFF", "SOCKET_BACKLOG", "UNIX_DISCONNECT", "UNIX_SKIP_OOB",
		"QUEUE_PURGE", "PACKET_SOCK_ERROR", "DUP_FRAG",
		"OTHERHOST": // flooded by a bridge: another machine's copy
		return false
	case "TCP_CSUM", "TCP_AUTH_HDR", "TCP_MD5NOTFOUND", "TCP_MD5UNEXPECTED", "TCP_MD5FAILURE",
		"TCP_AONOTFOUND", "TCP_AOUNEXPECTED", "TCP_AOKEYNOTFOUND", "TCP_AOFAILURE",
		"TCP_LISTEN_OVERFLOW", "TCP_MINTTL":
		return true
	}
	return !strings.HasPrefix(reason, "TCP_")
}

// faultReasons returns the set of drop reasons that the program records.
func faultReasons(k *Kernel) [4]uint64 {
	var set [4]uint64
	names, err := k.EnumNames("skb_drop_reason")
	if err != nil {
		return set // before v5.17: the hook is absent too
	}
	for n, name := range names {
		if n < 256 && isFault(strings.TrimPrefix(name, "SKB_DROP_REASON_")) {
			set[n/64] |= 1 << (n % 64)
		}
	}
	return set
}

// Bits of SockFail.Flags (enum kn_sock_flags).
const (
	SockReset       = 1 << 0
	SockNotSent     = 1 << 1
	SockNoState     = 1 << 2
	SockPeerClosed  = 1 << 3
	SockEstablished = 1 << 4
	SockDropped     = 1 << 5
	SockICMP        = 1 << 6
	SockSlow        = 1 << 7
)

// SockFail is struct kn_sockfail, of [KindSockFail] and [KindSockFailRecovered].
type SockFail struct {
	_             structs.HostLayout
	H             Header
	Opener        Task
	SrcAddr       [16]byte
	DstAddr       [16]byte
	SrcPort       uint16 // 0: not found, or not looked up
	DstPort       uint16
	NetNS         uint32
	Target        uint32
	Flags         uint8
	OldState      uint8
	NewState      uint8
	ICMPType      uint8
	StartNS       uint64
	BytesAcked    uint64 // the SYN included
	BytesReceived uint64
	Unacked       uint64
	DropLocation  uint64
	DropReason    uint32
	Drops         uint32
	Retransmits   uint32
	Err           uint32
	ErrSoft       uint32
	ICMPCode      uint8
	ICMPOrigin    uint8 // SO_EE_ORIGIN_*, received by the socket; 0: the kernel was seen sending it
	Pad           [2]uint8
	RTTMicros     uint32 // smoothed; 0: never established
	LimitMS       uint32 // answers that take longer are slow; 0: never
	MemoryID      uint64
	DefaultID     uint64
	Memory        Chain
	Default       Chain
}

// SockPending is struct pending: a connect() that has not sent anything yet.
type SockPending struct {
	_         structs.HostLayout
	Opener    Task
	StartNS   uint64
	MemoryID  uint64
	DefaultID uint64
	Addr      [16]byte
	NetNS     uint32
	Target    uint32
	Port      uint16
	Pad       [3]uint16
}

// SweepNeverSent makes the kernel write a record for each connect() to a target that began before
// the given time (since boot) and has sent nothing. Where a hook sees the return of connect(),
// there is nothing to sweep.
func (l *Loaded) SweepNeverSent(before time.Duration) error {
	pending, err := contents[uint32, SockPending](l.maps[SockfailMapPending])
	// ErrIterationAborted: connects came and went meanwhile; the next sweep handles the rest.
	if err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return fmt.Errorf("sweep connects: %w", err)
	}
	for tid, p := range pending {
		if p.StartNS >= uint64(before) {
			continue
		}
		ctx := binary.NativeEndian.AppendUint64(nil, uint64(tid))
		ctx = binary.NativeEndian.AppendUint64(ctx, p.StartNS)
		if _, err := l.programs[SockfailProgSweep].Run(&ebpf.RunOptions{Context: ctx}); err != nil {
			return fmt.Errorf("sweep connects: %w", err)
		}
	}
	return nil
}
