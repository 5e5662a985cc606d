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

// ErrScriptsOff is the error of an agent on which scripts are disabled.
var ErrScriptsOff = errors.New("scripts are disabled on this node: diagnose-scripts in the configuration enables them")

// nobody is the user and group of scripts. They have no supplementary groups.
const nobody = 65534

// scriptBounds are the limits of a script.
type scriptBounds struct {
	// The memory limit applies to each process (RLIMIT_DATA), and to all together if the cgroup has
	// the memory controller.
	process.Limits
	output int // bytes of output that are kept
}

func usualBounds() scriptBounds {
	return scriptBounds{Limits: process.Limits{Processes: 256, Memory: 512 << 20}, output: 1 << 20}
}

// Scripts runs the scripts of operations, several at a time. [OpenScripts] creates one.
type Scripts struct {
	bounds scriptBounds
	user   *syscall.Credential // nil: the agent's own, which is not root
	groups *process.Groups
	lock   *os.File // on the folder of groups
	reason error    // why scripts can't run
	serial atomic.Uint64
}

// OpenScripts prepares to run scripts, and kills scripts that a killed agent left. If scripts can't
// run here, [Scripts.Run] returns the reason.
func OpenScripts(log *slog.Logger) *Scripts {
	return openScripts(process.OwnCgroup, usualBounds(), log)
}

// openScripts creates the folder for cgroups of scripts below a parent. Scripts don't run without a
// cgroup, because nothing else kills processes that have left their session.
func openScripts(parent func() (string, error), bounds scriptBounds, log *slog.Logger) *Scripts {
	// Scripts must not inherit files that the agent was started with; Go already sets close-on-exec
	// on files that it opens. Linux before 5.11 lacks this call.
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
		s.reason = fmt.Errorf("scripts can't run on this node: they need their own control groups: %w", err)
		log.Warn("scripts of operations are disabled", "error", err)
	}
	return s
}

// groupsDir is the prefix of the name of a process' folder for cgroups. An agent, and commands
// beside it in its cgroup, have one each. Scripts can't open it to lock it.
const groupsDir = "kernosis-scripts"

// errTaken is returned if another process holds or has removed a folder.
var errTaken = errors.New("it belongs to another process")

// openGroups creates the folder of this process, and removes those of killed ones.
func (s *Scripts) openGroups(parent string, log *slog.Logger) error {
	for s.groups == nil {
		dir, err := os.MkdirTemp(parent, groupsDir+"-")
		if err == nil {
			s.groups, s.lock, err = s.take(dir, log)
		}
		// Until it is locked, another process that starts may mistake it for one of a killed
		// process.
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

// take kills everything in a folder's cgroups, and locks the folder until the file is closed or
// this process ends.
func (s *Scripts) take(dir string, log *slog.Logger) (groups *process.Groups, lock *os.File, err error) {
	lock, err = os.Open(dir)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		_, err = os.Stat(dir) // the previous holder may have removed it
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

// Close kills what is left of scripts. s may be nil. Run must not be called afterwards.
func (s *Scripts) Close() {
	if s != nil && s.groups != nil {
		s.groups.Close()
		_ = s.lock.Close() // it was only read
	}
}

// sealed returns an immutable in-memory file with the text.
func sealed(text string) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	// The sysctl vm.memfd_noexec requires declaring that the file is not executable; kernels before
	// 6.3 don't know that flag.
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
