package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cilium/ebpf"
)

// sockOpsPrograms knows the sock_ops programs of the machine that are not ours. IDs only
// grow, so each look is at what has come since, and at those it knows.
type sockOpsPrograms struct {
	last   ebpf.ProgramID
	others map[ebpf.ProgramID]bool
}

// look returns how many there are besides ours. Who may not ask gets [os.ErrPermission].
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

// CheckFollowers has the tracepoint's program follow connections too where the sock_ops
// program may not see all: while another one is on the machine, whose answer at connect()
// may end the calls for states that ours has asked for (or it may not be known whether
// there is one), and where nothing sees connect() return, which a connect without a free
// port does before any such call. It is for calling now and then while there are targets;
// most calls are one system call.
func (l *Loaded) CheckFollowers() error {
	if !l.serves(hookState, SockfailProgFollowOps) {
		return l.Detach(hookStateToo) // the tracepoint's program follows by itself
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

// serves reports whether a hook is attached to this program.
func (l *Loaded) serves(hookName, program string) bool {
	l.reportsMu.Lock()
	defer l.reportsMu.Unlock()
	for _, r := range l.reports {
		if r.Hook == hookName && r.Program == program && (r.State == Attached || r.State == Adopted) {
			return true
		}
	}
	return false
}
