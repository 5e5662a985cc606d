// Package selfcheck determines which parts of the agent can't work because a capability, a path of the
// host or a BPF program is missing.
//
// It tries the real operations: it opens a log, enters a network namespace, writes a file. It checks
// capabilities instead if a trial would change something and nothing else shows a missing right. It
// does not detect faults: it ignores a log that exists but is silent, or a daemon that is down.
//
// # Rights
//
// [Drop] drops capabilities that this process does not need and that could do harm, by mistake or in
// the hands of an attacker.
package selfcheck

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// Config is what the agent should do, and the errors of its start. Empty fields are not checked.
type Config struct {
	// HostRoot is where the host's file system is mounted; "" and "/" mean here.
	HostRoot string
	// Stems are the fault families, with the error if one can't be detected.
	Stems []Stem
	// NoMemlock is why the limit of locked memory, for kernels before 5.11, could not be raised.
	NoMemlock error
	// PinRoot is where programs are pinned to outlast the agent, and NoPins why they are not.
	PinRoot string
	NoPins  error
	// Logs are the logs to read.
	Logs []Log
	// StateDir is where state outlasts the agent, and NoState why it can't be used.
	StateDir string
	NoState  error
	// StateHangs reports whether the disk of StateDir does not answer; may be nil.
	StateHangs func() bool
	// Pods returns why kubelet could not be asked for the node's pods; nil: it should not be asked.
	Pods func() error
	// ReportSocket is where daemons report, and NoReports why they can't.
	ReportSocket string
	NoReports    error
	// Runtime: the container runtime is used.
	Runtime []string // directories of its sockets, one of which must exist
	// Sockets: the other end of connections is examined.
	Sockets bool
	// Uses is what the settings make the agent do.
	Uses
}

// Stem is one fault family that BPF programs detect.
type Stem struct {
	Name string
	Err  error // nil: its faults are detected
}

// Log is a log to be read.
type Log struct {
	Name, Plugin, Path string
}

// Checker checks what the agent can access. It is not safe for concurrent use.
type Checker struct {
	cfg Config
	fs  hostfs.FS

	opens      []bounded.Calls // of each log
	hangsAfter time.Duration
}

// hangsAfter is how long the trial of a log may take: as long as a busy disk may need.
const hangsAfter = 5 * time.Second

// New returns a Checker that has not checked anything yet.
func New(cfg Config) *Checker {
	return &Checker{cfg: cfg, fs: hostfs.New(cfg.HostRoot), opens: make([]bounded.Calls, len(cfg.Logs)), hangsAfter: hangsAfter}
}

// Look returns what is missing, in a stable order. It takes some milliseconds, and the first time
// some seconds for each log that does not answer.
func (c *Checker) Look() []Lack {
	// The rights of this process are read each time, because it may drop some while it runs.
	caps, capsErr := hostfs.New("").EffectiveCaps()
	have := func(names ...string) []string {
		if capsErr != nil {
			return nil
		}
		return caps.Missing(names...)
	}
	var all []Lack
	add := func(lacks ...*Lack) {
		for _, l := range lacks {
			if l != nil {
				all = append(all, *l)
			}
		}
	}
	add(c.stems(have)...)
	add(c.pins(), c.namespaceOfPIDs(), c.devices(), c.processes(have))
	if c.cfg.Sockets {
		add(c.namespaces())
	}
	add(c.symbols(have), c.cgroups())
	for i := range c.cfg.Logs {
		add(c.logInTime(i, have))
	}
	add(c.state(), c.reports(), c.runtime(), c.pods())
	if c.cfg.Diagnose {
		add(c.stacks(), c.captures())
	}
	if c.cfg.Scripts {
		add(missing("scripts", have("CAP_SETUID", "CAP_SETGID", "CAP_KILL"), "findings of scripts"))
	}
	return all
}

// missing returns the lack of capabilities; nil if none are missing.
func missing(part string, names []string, unseen string) *Lack {
	if len(names) == 0 {
		return nil
	}
	return lack(part, MissingRights, strings.Join(names, ", "), nil, unseen)
}

// refused reports whether an error is due to missing rights.
func refused(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
}

// Unwritable reports whether an error means that a folder is missing or can't be written, for
// example because its disk is full or fails, as opposed to a mistake in its contents.
func Unwritable(err error) bool {
	return refused(err) || errors.Is(err, fs.ErrNotExist) ||
		slices.ContainsFunc([]error{unix.EROFS, unix.ENOTDIR, unix.ENOSPC, unix.EDQUOT, unix.EIO}, func(e error) bool { return errors.Is(err, e) })
}

// socketStem has cgroup and socket programs besides tracing ones.
const socketStem = "sockfail"

// stems reports why BPF programs do not run.
func (c *Checker) stems(have func(...string) []string) []*Lack {
	var out []*Lack
	for _, s := range c.cfg.Stems {
		if s.Err == nil {
			if s.Name == socketStem && len(have("CAP_SYS_ADMIN")) > 0 && len(have("CAP_NET_ADMIN")) > 0 {
				// These programs are attached only when there is a target, but it is already known that
				// this would fail.
				out = append(out, lack(s.Name, MissingRights, "CAP_NET_ADMIN", nil, "connections without a route, and some when there are many at a time"))
			}
			continue
		}
		what := event.FaultsOf(s.Name)
		switch without := c.forPrograms(s.Name, have); {
		case len(without) > 0:
			out = append(out, lack(s.Name, MissingRights, strings.Join(without, ", "), s.Err, what))
		case !hasBTF():
			out = append(out, lack(s.Name, MissingHostPath, "/sys/kernel/btf/vmlinux", s.Err, what))
		default:
			why := s.Err
			if c.fs.LockedDown() {
				why = errors.Join(errors.New("the kernel is locked down"), s.Err)
			}
			out = append(out, lack(s.Name, ProgramsNotLoaded, "kernel programs of "+s.Name, why, what))
		}
	}
	return out
}

// hasBTF reports whether the kernel provides its types in the usual place.
func hasBTF() bool {
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	return err == nil
}

// forPrograms returns the missing capabilities that a stem which can't run needs.
func (c *Checker) forPrograms(stem string, have func(...string) []string) []string {
	var needs []string
	if len(have("CAP_SYS_ADMIN")) > 0 { // CAP_SYS_ADMIN includes each of these
		needs = []string{"CAP_BPF", "CAP_PERFMON"}
		if stem == socketStem {
			needs = append(needs, "CAP_NET_ADMIN")
		}
	}
	without := have(needs...)
	// Only if nothing else explains it: later kernels don't need it.
	refusedAny := slices.ContainsFunc(c.cfg.Stems, func(s Stem) bool { return errors.Is(s.Err, unix.EPERM) })
	if len(without) == 0 && refusedAny && errors.Is(c.cfg.NoMemlock, unix.EPERM) {
		return have("CAP_SYS_RESOURCE")
	}
	return without
}
