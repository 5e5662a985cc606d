package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// OwnCgroup returns the directory of this process's control group (v2), if [OpenGroups] may use it.
func OwnCgroup() (string, error) {
	node := hostfs.New("")
	layout, err := node.CgroupLayout()
	if err != nil {
		return "", err
	}
	if layout.Unified == "" {
		return "", errors.New("no cgroup v2 hierarchy is mounted")
	}
	// The path is relative to the cgroup namespace's root, which the mount shows as well.
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	groups, err := hostfs.ParseProcCgroups(string(text))
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(groups, func(g hostfs.ProcCgroup) bool { return g.Hierarchy == 0 })
	if i < 0 {
		return "", errors.New("this process is in no cgroup v2")
	}
	dir := filepath.Join(layout.Unified, groups[i].Path)
	// The mount may show another part of the hierarchy than the path refers to.
	if !holds(dir, os.Getpid()) {
		return "", fmt.Errorf("%s is not this process's control group", dir)
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return "", &os.PathError{Op: "write", Path: dir, Err: err}
	}
	return dir, nil
}

// holds reports whether a control group contains a process.
func holds(dir string, pid int) bool {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	return err == nil && bytes.Contains(append([]byte("\n"), b...), []byte("\n"+strconv.Itoa(pid)+"\n"))
}

// Limits are the limits of a control group.
type Limits struct {
	Processes int   // pids.max counts threads
	Memory    int64 // bytes; 0: no limit
}

// Groups is a directory of control groups. Create one with [OpenGroups].
type Groups struct {
	dir    string
	limits Limits
	singly bool // there is no cgroup.kill
	log    *slog.Logger

	mu  sync.Mutex
	all map[*Group]bool // those that are not closed
}

// Group is a control group for one program at a time. A nil Group means none.
type Group struct {
	of       *Groups
	base     string // dir, or a prefix of it
	dir      string
	fd       int  // of dir
	serial   int  // suffix of dir
	killed   bool // to be replaced before the next program
	counted  bool // the kernel doesn't limit its processes
	disabled atomic.Bool
}

// OpenGroups creates the directory dir for control groups. It kills what an earlier agent left in it.
func OpenGroups(dir string, limits Limits, log *slog.Logger) (*Groups, error) {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	singly, err := killsSingly(dir)
	if err != nil {
		_ = unix.Rmdir(dir)
		return nil, err
	}
	s := &Groups{dir: dir, limits: limits, singly: singly, log: log, all: map[*Group]bool{}}
	s.empty()
	// A controller may be missing; that is detected when a group is created.
	for _, controller := range []string{"+pids", "+memory"} {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(controller), 0)
	}
	return s, nil
}

// Make creates a control group. The name must not be in use.
func (s *Groups) Make(name string) (*Group, error) {
	g := &Group{of: s, base: filepath.Join(s.dir, name), fd: -1}
	if err := g.open(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[g] = true
	return g, nil
}

// Close removes the directory and its groups, and kills their processes.
func (s *Groups) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for g := range s.all {
		g.closeDir()
	}
	clear(s.all)
	s.empty()
	_ = unix.Rmdir(s.dir)
}

// Close removes the group, if its processes can be killed.
func (g *Group) Close() {
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	if g.of.all[g] {
		delete(g.of.all, g)
		g.closeDir()
		removeGroup(g.dir, g.of.singly, time.Now().Add(time.Second))
	}
}

func (g *Group) closeDir() {
	if g.fd >= 0 {
		_ = unix.Close(g.fd)
		g.fd = -1
	}
}

// open creates the control group and opens its directory. It does not use an existing one: it has
// processes of an earlier agent that could not be killed.
func (g *Group) open() error {
	dir := g.base
	err := os.Mkdir(dir, 0o755)
	for errors.Is(err, fs.ErrExist) {
		g.serial++
		dir = g.base + "." + strconv.Itoa(g.serial)
		err = os.Mkdir(dir, 0o755)
	}
	fd := -1
	if err == nil {
		fd, err = unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return &os.PathError{Op: "make control group", Path: dir, Err: err}
	}
	g.dir, g.fd = dir, fd
	g.counted = os.WriteFile(filepath.Join(dir, "pids.max"), []byte(strconv.Itoa(g.of.limits.Processes)), 0) != nil
	if g.of.limits.Memory > 0 {
		// Without the controller, the caller has other means.
		_ = os.WriteFile(filepath.Join(dir, "memory.max"), []byte(strconv.FormatInt(g.of.limits.Memory, 10)), 0)
		_ = os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("0"), 0)
		_ = os.WriteFile(filepath.Join(dir, "memory.oom.group"), []byte("1"), 0)
	}
	return nil
}

// renew replaces a control group that was killed: since 6.14, kernels kill whatever is started in
// it later by clone3 (cgroup_css_set_fork takes the kill count of the parent's group).
func (g *Group) renew() error {
	old, fd := g.dir, g.fd
	if err := g.open(); err != nil { // the old one exists, so the new one has another name
		return err
	}
	g.killed = false
	_ = unix.Close(fd)
	// A group whose processes can't be killed stays until the set's groups are removed.
	_ = unix.Rmdir(old)
	return nil
}

// enter returns the directory to start a program in, false if there is none.
func (g *Group) enter() (fd int, ok bool) {
	if g == nil || g.disabled.Load() {
		return -1, false
	}
	if g.killed {
		if err := g.renew(); err != nil {
			g.unusable(err)
			return -1, false
		}
	}
	return g.fd, true
}

// unusable disables the group after a program could not be started in it.
func (g *Group) unusable(err error) {
	g.disabled.Store(true)
	g.of.log.Warn("programs run without a control group", "cgroup", g.dir, "error", err)
}

// empty kills the processes in the groups and removes the groups, as far as possible within a
// second: a process in uninterruptible sleep keeps its group.
func (s *Groups) empty() {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return
	}
	deadline := time.Now().Add(time.Second)
	for _, e := range entries {
		if e.IsDir() {
			removeGroup(filepath.Join(s.dir, e.Name()), s.singly, deadline)
		}
	}
}

// removeGroup kills the processes of a group and removes it.
func removeGroup(dir string, singly bool, deadline time.Time) {
	_ = killAll(dir, singly, deadline)
	for errors.Is(unix.Rmdir(dir), unix.EBUSY) && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond) // the only way to wait for it is inotify
	}
}

// killsSingly reports whether the processes of a group have to be killed one by one, because there
// is no cgroup.kill before Linux 5.14. It returns an error if that isn't possible either.
func killsSingly(dir string) (bool, error) {
	file := filepath.Join(dir, "cgroup.kill")
	err := unix.Access(file, unix.W_OK)
	singly := errors.Is(err, unix.ENOENT)
	if singly {
		file = filepath.Join(dir, "cgroup.freeze") // since Linux 5.2
		err = unix.Access(file, unix.W_OK)
	}
	if err != nil {
		return singly, &os.PathError{Op: "make control group", Path: file, Err: err}
	}
	return singly, nil
}

// killAll kills the processes of a group.
func killAll(dir string, singly bool, deadline time.Time) error {
	if singly {
		return killSingly(dir, deadline)
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
}

// killSingly kills the processes of a group one by one. It freezes them first, so that none forks
// meanwhile; in cgroup v2, SIGKILL also ends frozen processes.
func killSingly(dir string, deadline time.Time) error {
	freeze := filepath.Join(dir, "cgroup.freeze")
	if err := os.WriteFile(freeze, []byte("1"), 0); err != nil {
		return err
	}
	defer func() { _ = os.WriteFile(freeze, []byte("0"), 0) }()
	for {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil || len(b) == 0 {
			return err
		}
		for line := range strings.Lines(string(b)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
				killMember(dir, pid)
			}
		}
		if time.Now().After(deadline) {
			return errors.New("processes are left")
		}
		time.Sleep(time.Millisecond)
	}
}

// killMember kills a process if it is still in the group, but none that has reused its number.
func killMember(dir string, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if holds(dir, pid) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// overfull reports whether the group has more processes than allowed.
func (g *Group) overfull() bool {
	f, err := os.Open(filepath.Join(g.dir, "cgroup.procs"))
	if err != nil {
		return false
	}
	defer f.Close()
	buf, lines, most := make([]byte, 4<<10), 0, g.of.limits.Processes
	for lines <= most {
		n, err := f.Read(buf)
		lines += bytes.Count(buf[:n], []byte{'\n'})
		if err != nil {
			break
		}
	}
	return lines > most
}

// kill kills every process in the directory of a [Group], and reports whether it may have had any.
func (s *Groups) kill(dir string) bool {
	has, err := populated(dir)
	if err == nil && !has {
		return false
	}
	if err == nil {
		err = killAll(dir, s.singly, time.Now().Add(time.Second))
	}
	if err != nil {
		s.log.Warn("control group of a program was not killed", "cgroup", dir, "error", err)
	}
	return true
}
