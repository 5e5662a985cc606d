package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// OwnCgroup returns the directory of the control group (v2) of this process, if it may create
// others below it, for [OpenGroups].
func OwnCgroup() (string, error) {
	node := hostfs.New("")
	layout, err := node.CgroupLayout()
	if err != nil {
		return "", err
	}
	if layout.Unified == "" {
		return "", errors.New("no cgroup v2 hierarchy is mounted")
	}
	// The path is relative to the cgroup namespace's root, which this namespace's mount shows as
	// well.
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	groups, err := hostfs.ParseProcCgroups(string(text))
	if err != nil {
		return "", err
	}
	for _, g := range groups {
		if g.Hierarchy != 0 {
			continue
		}
		dir := filepath.Join(layout.Unified, g.Path)
		// The mount may show another part of the hierarchy than the path refers to.
		if !holds(dir, os.Getpid()) {
			return "", fmt.Errorf("%s is not this process's control group", dir)
		}
		if err := unix.Access(dir, unix.W_OK); err != nil {
			return "", &os.PathError{Op: "write", Path: dir, Err: err}
		}
		return dir, nil
	}
	return "", errors.New("this process is in no cgroup v2")
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

// OpenGroups creates the directory dir for control groups. It kills processes that an earlier
// agent left in it.
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

// unusable disables the group, because no program can be started in it.
func (g *Group) unusable(err error) {
	g.disabled.Store(true)
	g.of.log.Warn("programs run without a control group", "cgroup", g.dir, "error", err)
}
