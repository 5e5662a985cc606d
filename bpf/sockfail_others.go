package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/cilium/ebpf"
)

// sockOpsPrograms tracks the sock_ops programs of other software on this machine. IDs only grow, so
// each call checks only new IDs and the programs it has found.
type sockOpsPrograms struct {
	last   ebpf.ProgramID
	others map[ebpf.ProgramID]bool
}

// look returns how many sock_ops programs there are besides ours, or [os.ErrPermission] if this
// process may not list programs.
func (s *sockOpsPrograms) look(ours *ebpf.Program) (int, error) {
	for id := range s.others {
		_, err := isSockOps(id)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			delete(s.others, id)
		case err != nil:
			return 0, err
		}
	}
	for {
		id, err := ebpf.ProgramGetNextID(s.last)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return len(s.others), nil
		case err != nil:
			return 0, fmt.Errorf("list programs: %w", err)
		}
		is, err := isSockOps(id)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		if is {
			info, err := ours.Info()
			if err != nil {
				return 0, fmt.Errorf("program %s: %w", SockfailProgFollowOps, err)
			}
			if own, ok := info.ID(); !ok || own != id {
				s.others[id] = true
			}
		}
		s.last = id
	}
}

func isSockOps(id ebpf.ProgramID) (bool, error) {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return false, fmt.Errorf("program %d: %w", id, err)
	}
	defer p.Close()
	return p.Type() == ebpf.SockOps, nil
}

// CheckFollowers attaches the tracepoint's program as a second follower of connections where the
// sock_ops program may miss some, and detaches it otherwise. There are two such cases. First, the
// machine has another sock_ops program (or that can't be determined): its answer at connect() may
// end the state callbacks that ours requested. Second, no hook sees connect() return: a connect
// that finds no free port fails before any such callback. Call it regularly while there are
// targets; most calls make one system call.
func (l *Loaded) CheckFollowers() error {
	if !l.serves(hookState, SockfailProgFollowOps) {
		return l.Detach(hookStateToo) // the tracepoint's program follows connections alone
	}
	if l.links[hookReturn4] == nil || l.links[hookReturn6] == nil {
		return l.Attach(hookStateToo)
	}
	others, err := l.sockOps.look(l.programs[SockfailProgFollowOps])
	switch {
	case err == nil && others == 0:
		return l.Detach(hookStateToo)
	case err == nil, errors.Is(err, os.ErrPermission):
		return l.Attach(hookStateToo)
	}
	return err
}

// serves reports whether this program is attached to a hook.
func (l *Loaded) serves(hookName, program string) bool {
	l.reportsMu.Lock()
	defer l.reportsMu.Unlock()
	return slices.ContainsFunc(l.reports, func(r VariantReport) bool {
		return r.Hook == hookName && r.Program == program && (r.State == Attached || r.State == Adopted)
	})
}
