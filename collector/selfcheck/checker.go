package selfcheck

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// Config says what the agent is to do, and what came of that at its start. What is
// empty is not looked at.
type Config struct {
	// HostRoot is where the host's file system is; "" and "/": here.
	HostRoot string
	// Stems are the fault families, with why one can't see its faults.
	Stems []Stem
	// NoMemlock is why the limit of locked memory could not be raised, which kernels
	// before 5.11 need; nil: it could.
	NoMemlock error
	// PinRoot is where programs are to outlast the agent, and NoPins why they don't.
	PinRoot string
	NoPins  error
	// Logs are to be read.
	Logs []Log
	// StateDir is to outlast the agent, and NoState why it does not.
	StateDir string
	NoState  error
	// StateHangs reports whether the disk of StateDir does not answer; nil: it is not known.
	StateHangs func() bool
	// Pods returns why kubelet could not be asked for the node's pods; nil: it is not to be asked.
	Pods func() error
	// ReportSocket is where daemons report, and NoReports why they can't.
	ReportSocket string
	NoReports    error
	// Runtime: the container runtime is asked.
	Runtime []string // folders of its sockets, one of which has to be there
	// Sockets: the other end of connections is looked at.
	Sockets bool
	// Diagnose: causes are looked for.
	Diagnose bool
	// ScriptUser: scripts run as another user.
	ScriptUser bool
}

// Stem is one fault family of kernel programs.
type Stem struct {
	Name string
	Err  error // nil: it sees
}

// Log is a log to be read.
type Log struct {
	Name, Plugin, Path string
}

// Checker looks at the agent's own means. It is not safe for concurrent use.
type Checker struct {
	cfg Config
	fs  hostfs.FS
}

// New returns a Checker that has looked at nothing.
func New(cfg Config) *Checker { return &Checker{cfg: cfg, fs: hostfs.New(cfg.HostRoot)} }

// Look tries everything and returns what is lacking, in an order that stays. It takes
// some milliseconds.
func (c *Checker) Look() []Lack {
	// What this process may do is read each time: it may drop rights as it runs.
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
	for _, l := range c.cfg.Logs {
		add(c.log(l, have))
	}
	add(c.state(), c.reports(), c.runtime(), c.pods())
	if c.cfg.Diagnose {
		add(c.stacks(), c.captures())
	}
	if c.cfg.ScriptUser {
		add(missing("scripts", have("CAP_SETUID", "CAP_SETGID", "CAP_KILL"), "what scripts find"))
	}
	return all
}

// missing is a lack of capabilities; nil: none are missing.
func missing(part string, names []string, unseen string) *Lack {
	if len(names) == 0 {
		return nil
	}
	return lack(part, MissingRights, strings.Join(names, ", "), nil, unseen)
}

// refused reports whether an error is about rights.
func refused(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
}

// Unwritable reports whether an error means that a folder is not there or can't be
// written, as its disk is full or fails, say, as opposed to a mistake in what is in it.
func Unwritable(err error) bool {
	return refused(err) || errors.Is(err, fs.ErrNotExist) ||
		slices.ContainsFunc([]error{unix.EROFS, unix.ENOTDIR, unix.ENOSPC, unix.EDQUOT, unix.EIO}, func(e error) bool { return errors.Is(err, e) })
}

// socketStem has programs of control groups and sockets besides tracing ones.
const socketStem = "sockfail"

// stems reports why kernel programs do not run.
func (c *Checker) stems(have func(...string) []string) []*Lack {
	var out []*Lack
	for _, s := range c.cfg.Stems {
		if s.Err == nil {
			if s.Name == socketStem && len(have("CAP_SYS_ADMIN")) > 0 && len(have("CAP_NET_ADMIN")) > 0 {
				// They are attached when there is a target to watch; that it would be in
				// vain is known before.
				out = append(out, lack(s.Name, MissingRights, "CAP_NET_ADMIN", nil, "connections without a route, and some of many at a time"))
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

// hasBTF reports whether the kernel reports its types where they are looked for.
func hasBTF() bool {
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	return err == nil
}

// forPrograms returns which capabilities a stem that can't run would need.
func (c *Checker) forPrograms(stem string, have func(...string) []string) []string {
	var needs []string
	if len(have("CAP_SYS_ADMIN")) > 0 { // it stands for each of these
		needs = []string{"CAP_BPF", "CAP_PERFMON"}
		if stem == socketStem {
			needs = append(needs, "CAP_NET_ADMIN")
		}
	}
	without := have(needs...)
	// Only where nothing else explains it: later kernels have no use for it.
	refusedAny := slices.ContainsFunc(c.cfg.Stems, func(s Stem) bool { return errors.Is(s.Err, unix.EPERM) })
	if len(without) == 0 && refusedAny && errors.Is(c.cfg.NoMemlock, unix.EPERM) {
		return have("CAP_SYS_RESOURCE")
	}
	return without
}
