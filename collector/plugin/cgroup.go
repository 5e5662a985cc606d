package plugin

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// groupPrefix begins the names of the control groups made here.
const groupPrefix = "kernosis-check-"

// OwnCgroup returns the directory of the control group (v2) that this process is
// in, where it may make others below it: for [Config.Cgroup].
func OwnCgroup() (string, error) {
	node := hostfs.New("")
	layout, err := node.CgroupLayout()
	if err != nil {
		return "", err
	}
	if layout.Unified == "" {
		return "", errors.New("no cgroup v2 hierarchy is mounted")
	}
	groups, err := node.ProcCgroups(os.Getpid())
	if err != nil {
		return "", err
	}
	for _, g := range groups {
		if g.Hierarchy != 0 {
			continue
		}
		dir := filepath.Join(layout.Unified, g.Path)
		// The mount may show another part of the hierarchy than the path is of.
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

// holds tells whether a control group has a process.
func holds(dir string, pid int) bool {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	return err == nil && bytes.Contains(append([]byte("\n"), b...), []byte("\n"+strconv.Itoa(pid)+"\n"))
}

// group is the control group of one check. A nil group is none.
type group struct {
	base     string // dir, or what dir begins with
	dir      string
	fd       int  // its directory
	serial   int  // how often it was made anew
	killed   bool // to be made anew before the next program
	max      int
	counted  bool // the kernel doesn't bound its processes
	disabled atomic.Bool
	log      *slog.Logger
}

// groupDir returns where the control groups of a set are.
func groupDir(parent, set string) string {
	name := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r == '-' {
			return r
		}
		return '_'
	}, set)
	return filepath.Join(parent, groupPrefix+name[:min(len(name), 100)])
}

// openGroups makes a control group for each of n checks. What a former agent left
// in them is killed.
func openGroups(dir string, n, maximum int, log *slog.Logger) ([]*group, error) {
	removeGroups(dir)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	// The controller may not be there; its absence is found below.
	_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+pids"), 0)
	groups := make([]*group, 0, n)
	for i := range n {
		g := &group{base: filepath.Join(dir, strconv.Itoa(i)), fd: -1, max: maximum, log: log}
		groups = append(groups, g)
		if err := g.open(g.base); err != nil {
			closeGroups(dir, groups)
			return nil, err
		}
	}
	return groups, nil
}

// open makes the control group and opens its directory.
func (g *group) open(dir string) error {
	err := os.Mkdir(dir, 0o755)
	fd := -1
	if err == nil || errors.Is(err, fs.ErrExist) {
		fd, err = unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err == nil {
		// Since Linux 5.14; before, nothing is gained by the group.
		err = unix.Access(filepath.Join(dir, "cgroup.kill"), unix.W_OK)
	}
	if err != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return &os.PathError{Op: "make control group", Path: dir, Err: err}
	}
	g.dir, g.fd = dir, fd
	g.counted = os.WriteFile(filepath.Join(dir, "pids.max"), []byte(strconv.Itoa(g.max)), 0) != nil
	return nil
}

// renew puts another control group in the place of one that was killed: kernels
// from 6.14 on kill whatever is started in it later by clone3
// (cgroup_css_set_fork takes the kill count of the parent's group).
func (g *group) renew() error {
	old, fd := g.dir, g.fd
	g.serial++
	if err := g.open(g.base + "." + strconv.Itoa(g.serial)); err != nil {
		return err
	}
	g.killed = false
	_ = unix.Close(fd)
	// What can't be killed keeps its group until the set's are removed.
	_ = unix.Rmdir(old)
	return nil
}

// closeGroups removes the control groups.
func closeGroups(dir string, groups []*group) {
	for _, g := range groups {
		if g.fd >= 0 {
			_ = unix.Close(g.fd)
			g.fd = -1
		}
	}
	removeGroups(dir)
}

// removeGroups kills what is in the groups and removes them, as far as that can be
// done within a moment: a process in uninterruptible sleep keeps its group.
func removeGroups(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	deadline := time.Now().Add(time.Second)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		child := filepath.Join(dir, e.Name())
		_ = os.WriteFile(filepath.Join(child, "cgroup.kill"), []byte("1"), 0)
		for errors.Is(unix.Rmdir(child), unix.EBUSY) && time.Now().Before(deadline) {
			time.Sleep(5 * time.Millisecond) // there is no way to wait for it but inotify
		}
	}
	_ = unix.Rmdir(dir)
}

// enter returns the directory to start a program in, false where there is none.
func (g *group) enter() (fd int, ok bool) {
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

// unusable says that no program can be started in the group.
func (g *group) unusable(err error) {
	g.disabled.Store(true)
	g.log.Warn("checks run without a control group", "cgroup", g.dir, "error", err)
}

// counts tells whether the processes in the group are to be counted.
func (g *group) counts() bool { return g != nil && g.counted }

// overfull tells whether the group has more processes than it may.
func (g *group) overfull() bool {
	f, err := os.Open(filepath.Join(g.dir, "cgroup.procs"))
	if err != nil {
		return false
	}
	defer f.Close()
	buf, lines := make([]byte, 4<<10), 0
	for lines <= g.max {
		n, err := f.Read(buf)
		lines += bytes.Count(buf[:n], []byte{'\n'})
		if err != nil {
			break
		}
	}
	return lines > g.max
}

// kill ends every process in the group, if there is one.
func (g *group) kill() {
	if g == nil {
		return
	}
	events, err := os.ReadFile(filepath.Join(g.dir, "cgroup.events"))
	if err == nil && !bytes.Contains(events, []byte("populated 1")) {
		return
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0)
	}
	if err != nil {
		g.log.Warn("control group of a check was not killed", "cgroup", g.dir, "error", err)
	}
	g.killed = true
}
