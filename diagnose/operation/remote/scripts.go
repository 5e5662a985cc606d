package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/process"
)

// ErrScriptsOff is the answer of an agent that runs no scripts.
var ErrScriptsOff = errors.New("scripts are off on this node: diagnose-scripts in the configuration turns them on")

// nobody is the user and group that scripts have, without other groups.
const nobody = 65534

// scriptBounds bound a script.
type scriptBounds struct {
	// The memory is that of each of its processes (RLIMIT_DATA), and of all together where
	// the control group has the memory controller.
	process.Limits
	output int // bytes that are kept of what it writes
}

func usualBounds() scriptBounds {
	return scriptBounds{Limits: process.Limits{Processes: 256, Memory: 512 << 20}, output: 1 << 20}
}

// Scripts runs the scripts of operations, several at a time. Make one with [OpenScripts].
type Scripts struct {
	bounds scriptBounds
	user   *syscall.Credential // nil: the agent's own, which is not root's
	groups *process.Groups
	lock   *os.File // on the folder of groups
	reason error    // why it runs none
	serial atomic.Uint64
}

// OpenScripts makes ready to run scripts, and kills those that a killed process left. Where
// none can be run, [Scripts.Run] says why.
func OpenScripts(log *slog.Logger) *Scripts {
	return openScripts(process.OwnCgroup, usualBounds(), log)
}

// openScripts makes the control groups of scripts below a parent. No script is run without
// one, because nothing else ends what has left its session.
func openScripts(parent func() (string, error), bounds scriptBounds, log *slog.Logger) *Scripts {
	// What the agent was started with is not for scripts: files of its own are marked
	// so by Go. Before Linux 5.11 there is no such call.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	s := &Scripts{bounds: bounds}
	if os.Geteuid() == 0 {
		s.user = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	dir, err := parent()
	if err == nil {
		err = s.openGroups(dir, log)
	}
	if err != nil {
		s.reason = fmt.Errorf("scripts can't be run on this node: they need control groups of their own: %w", err)
		log.Warn("scripts of operations are not run", "error", err)
	}
	return s
}

// groupsDir begins the name of a process's folder of control groups: an agent, and commands
// beside it in its control group, have one each, which scripts can't open to lock it.
const groupsDir = "kernosis-scripts"

// errTaken says that another process has a folder, or has removed it.
var errTaken = errors.New("another process has it")

// openGroups makes the folder of this process, and empties those of killed ones.
func (s *Scripts) openGroups(parent string, log *slog.Logger) error {
	for s.groups == nil {
		dir, err := os.MkdirTemp(parent, groupsDir+"-")
		if err == nil {
			s.groups, s.lock, err = s.take(dir, log)
		}
		// Before it is locked, another process that starts may take it for a killed one's.
		if err != nil && !errors.Is(err, errTaken) {
			return err
		}
	}
	all, err := os.ReadDir(parent)
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), groupsDir) {
			continue
		}
		if left, lock, err := s.take(filepath.Join(parent, e.Name()), log); err == nil {
			left.Close()
			_ = lock.Close() // it was only read
		}
	}
	return err
}

// take empties a folder, and locks it until the file is closed or this process ends.
func (s *Scripts) take(dir string, log *slog.Logger) (groups *process.Groups, lock *os.File, err error) {
	lock, err = os.Open(dir)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		_, err = os.Stat(dir) // whoever had it may have removed it
	}
	switch {
	case errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist):
		err = errTaken
	case err == nil:
		groups, err = process.OpenGroups(dir, s.bounds.Limits, log)
	}
	if err != nil {
		_ = lock.Close() // it was only read
	}
	return groups, lock, err
}

// Close ends what is left of scripts, if s is not nil. Run must not be called any more.
func (s *Scripts) Close() {
	if s != nil && s.groups != nil {
		s.groups.Close()
		_ = s.lock.Close() // it was only read
	}
}

// sealed returns a file in memory with text, which nobody can change.
func sealed(text string) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	// vm.memfd_noexec wants it to be reported that nothing is to be executed; kernels
	// before 6.3 don't know that.
	fd, err := unix.MemfdCreate("kernosis-script", flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate("kernosis-script", flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "script")
	_, err = f.WriteString(text)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("seal script: %w", err), f.Close())
	}
	return f, nil
}
