package selfcheck

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/logs/crash"
)

// pins checks the pins, which are kept on a BPF filesystem.
func (c *Checker) pins() *Lack {
	const unseen = "faults while the agent restarts"
	switch dir := filepath.Dir(c.cfg.PinRoot); {
	case c.cfg.PinRoot == "" || c.cfg.NoPins == nil:
		return nil
	case refused(c.cfg.NoPins) && isBPF(dir):
		return lack("pins", MissingRights, "the right to write "+dir, c.cfg.NoPins, unseen)
	default:
		return lack("pins", MissingHostPath, dir+" (a BPF filesystem)", c.cfg.NoPins, unseen)
	}
}

func isBPF(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == unix.BPF_FS_MAGIC
}

// initialPIDNamespace is its inode number on every kernel since 3.8 (PROC_PID_INIT_INO).
const initialPIDNamespace = 0xEFFFFFFC

// namespaceOfPIDs checks that the PID namespace is the node's: else process numbers differ.
func (c *Checker) namespaceOfPIDs() *Lack {
	const unseen = "how long hangs last, other processes and their pods"
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return lack("processes", MissingHostPath, "/proc", err, unseen)
	}
	if st.Ino != initialPIDNamespace {
		return lack("processes", MissingHostPath, "the node's PID namespace (hostPID)", errors.New("the agent runs in another one"), unseen)
	}
	if _, err := os.Stat(c.fs.Path("/proc/1/stat")); err != nil {
		return lack("processes", MissingHostPath, c.fs.Path("/proc")+" (the node's)", err, unseen)
	}
	return nil
}

// devices checks for the node's devices in its /sys.
func (c *Checker) devices() *Lack {
	if _, err := os.Stat(c.fs.Path("/sys/block")); err != nil {
		return lack("devices", MissingHostPath, c.fs.Path("/sys")+" (the node's)", err, "stalled disks, names of disks, control groups")
	}
	return nil
}

// lookedAt is how many processes are tried.
const lookedAt = 512

// processes checks access to other processes' namespaces and files: the right to trace them.
func (c *Checker) processes(have func(...string) []string) *Lack {
	without := have("CAP_SYS_PTRACE")
	if len(without) == 0 {
		return nil
	}
	pids, err := c.fs.PIDs()
	if err != nil {
		return nil // namespaceOfPIDs reports it
	}
	for _, pid := range pids[:min(len(pids), lookedAt)] {
		if _, err := c.fs.NetNS(pid); refused(err) {
			return lack("processes", MissingRights, without[0], err, "network namespaces and open files of other processes")
		}
	}
	return nil
}

// namespaces checks whether network namespaces can be entered, to query listeners and their
// queues. It enters this process' own namespace, which requires the same right.
func (c *Checker) namespaces() *Lack {
	if err := enterOwn(); err != nil {
		return lack("namespaces", MissingRights, "CAP_SYS_ADMIN", err, "full accept queues and listeners of pods (reported as unanswered)")
	}
	return nil
}

func enterOwn() error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			done <- fmt.Errorf("own network namespace: %w", err)
			return
		}
		defer func() { _ = unix.Close(fd) }()
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("setns: %w", err)
			return
		}
		done <- nil
	}()
	return <-done
}

// symbols checks for the symbols of kernel stacks. With kptr_restrict=2 no right helps.
func (c *Checker) symbols(have func(...string) []string) *Lack {
	without := have("CAP_SYSLOG")
	if len(without) == 0 {
		return nil
	}
	file, err := os.Open(c.fs.Path("/proc/kallsyms"))
	if err != nil {
		return nil
	}
	defer file.Close()
	line, err := bufio.NewReaderSize(file, 256).ReadString(' ')
	if err != nil || strings.Trim(line, "0 ") != "" {
		return nil
	}
	return lack("symbols", MissingRights, without[0], errors.New("addresses in /proc/kallsyms are 0"), "functions in kernel stacks")
}

// cgroups checks whether control groups can be found by their number, which records contain.
func (c *Checker) cgroups() *Lack {
	finder, err := c.fs.OpenCgroupFinder()
	if err != nil {
		return nil // there is no such hierarchy
	}
	defer finder.Close()                        //nolint:errcheck // it was only read
	if _, err := finder.Find(1); refused(err) { // the root's
		return lack("cgroups", MissingRights, "CAP_DAC_READ_SEARCH", err, "pods in deep control groups")
	}
	return nil
}

// logInTime tries to open a log. One on a disk or server that does not answer is not lacking: its
// source reports that.
func (c *Checker) logInTime(i int, have func(...string) []string) *Lack {
	found, _ := bounded.Do(&c.opens[i], c.hangsAfter, func() (*Lack, error) { return c.log(c.cfg.Logs[i], have), nil })
	return found
}

// log tries to open a log.
func (c *Checker) log(l Log, have func(...string) []string) *Lack {
	part, unseen := "log/"+l.Name, "the log "+l.Name
	if l.Name == "kmsg" {
		unseen = "the kernel's log"
	}
	switch l.Plugin {
	case "kmsg":
		fd, err := unix.Open(l.Path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			_ = unix.Close(fd)
			return nil
		}
		return open(part, l.Path, err, have("CAP_SYSLOG"), unseen)
	case "journald":
		return c.journal(part, l.Path, have, unseen)
	case "crash":
		if hidden, ok := errors.AsType[*fs.PathError](crash.Check(c.fs)); ok {
			return open(part, hidden.Path, hidden, have("CAP_DAC_READ_SEARCH"), "panics of the kernel")
		}
		return nil
	}
	if strings.ContainsAny(l.Path, "*?[") {
		return nil // it may match nothing
	}
	file, err := c.fs.Open(l.Path)
	if err == nil {
		_ = file.Close()
		return nil
	}
	if dir := filepath.Dir(l.Path); errors.Is(err, fs.ErrNotExist) {
		// A log file that no program has created yet is not missing.
		if _, err := c.fs.RealPath(dir); err != nil {
			return lack(part, MissingHostPath, c.fs.Path(dir), err, unseen)
		}
		return nil
	}
	return open(part, c.fs.Path(l.Path), err, have("CAP_DAC_READ_SEARCH"), unseen)
}

// open returns why a path could not be opened.
func open(part, path string, err error, without []string, unseen string) *Lack {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return lack(part, MissingHostPath, path, err, unseen)
	case refused(err) && len(without) > 0:
		return lack(part, MissingRights, strings.Join(without, ", "), err, unseen)
	case refused(err):
		return lack(part, MissingRights, "the right to read "+path, err, unseen)
	}
	return nil // another error, which the log's source reports
}

// journal checks for the host's journalctl and the journal's folders.
func (c *Checker) journal(part, folder string, have func(...string) []string, unseen string) *Lack {
	exists := func(path string) bool { _, err := os.Lstat(c.fs.Path(path)); return err == nil }
	if !exists("/usr/bin/journalctl") && !exists("/bin/journalctl") {
		return lack(part, MissingHostPath, c.fs.Path("/usr/bin/journalctl"), fs.ErrNotExist, unseen)
	}
	folders := []string{folder}
	if folder == "" {
		folders = []string{"/var/log/journal", "/run/log/journal"}
	}
	err := fs.ErrNotExist
	for _, p := range folders {
		if _, err = os.Stat(c.fs.Path(p)); err == nil {
			break
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return lack(part, MissingHostPath, c.fs.Path(folders[0]), err, unseen)
	}
	if !c.fs.IsRoot() {
		return missing(part, have("CAP_SYS_CHROOT"), unseen)
	}
	return nil
}

var errHangs = errors.New("writes do not return")

func (c *Checker) state() *Lack {
	if c.cfg.StateHangs != nil && c.cfg.StateHangs() {
		return lack("state", DiskHangs, c.cfg.StateDir+" (its disk does not answer)", errHangs, "causes of problems, and, after a kill, what was reported meanwhile")
	}
	if c.cfg.NoState == nil {
		return nil
	}
	return lack("state", MissingHostPath, c.cfg.StateDir+" (writable)", c.cfg.NoState, "state from before a restart, and artifacts of diagnoses")
}

func (c *Checker) reports() *Lack {
	if c.cfg.NoReports == nil {
		return nil
	}
	return lack("reports", MissingHostPath, filepath.Dir(c.cfg.ReportSocket)+" (writable)", c.cfg.NoReports, "reports of other problem daemons")
}

// pods checks whether kubelet allows asking it for the pods. If it is down, it comes back by itself.
func (c *Checker) pods() *Lack {
	if c.cfg.Pods == nil {
		return nil
	}
	if err := c.cfg.Pods(); refused(err) {
		return lack("pods", MissingRights, "get on nodes/pods (kubelet's, since 1.33)", err, "names and labels of pods")
	}
	return nil
}

// runtime checks for the folder of the runtime's socket; the socket is missing while it is down.
func (c *Checker) runtime() *Lack {
	if len(c.cfg.Runtime) == 0 {
		return nil
	}
	for _, dir := range c.cfg.Runtime {
		if _, err := os.Stat(c.fs.Path(dir)); err == nil {
			return nil
		}
	}
	return lack("runtime", MissingHostPath, c.fs.Path(c.cfg.Runtime[0]), fs.ErrNotExist, "the container runtime")
}

// stacks checks access to the kernel stacks of tasks, which show what they wait for.
func (c *Checker) stacks() *Lack {
	file, err := os.Open("/proc/self/stack")
	if err == nil {
		_, err = file.Read(make([]byte, 1))
		_ = file.Close()
	}
	if !refused(err) {
		return nil
	}
	return lack("stacks", MissingRights, "CAP_SYS_ADMIN", err, "kernel stacks of blocked tasks in diagnoses")
}

// captures checks whether packets can be captured, which diagnoses of connections do.
func (c *Checker) captures() *Lack {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	if !refused(err) {
		return nil
	}
	return lack("captures", MissingRights, "CAP_NET_RAW", err, "packets in diagnoses")
}
