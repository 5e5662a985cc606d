package process

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

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

// killMember kills a process if it is still in the group, but no other process that has reused its
// number.
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
