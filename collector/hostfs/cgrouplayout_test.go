package hostfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestFromCgroupRoot(t *testing.T) {
	const own, unknown = "/kubepods/burstable/poda/ida", "/…/…/…/…"
	for _, c := range []struct{ namespace, path, want string }{
		{"", "/", "/"},
		{"", "/system.slice/ssh.service", "/system.slice/ssh.service"},
		{"", "/..", "…/"}, // outside what the machine's own mount shows
		{own, "/", own},
		{own, "/init", own + "/init"},
		{own, "/..", "/kubepods/burstable/poda"},
		{own, "/../idb", "/kubepods/burstable/poda/idb"},
		{own, "/../../podb/idb", "/kubepods/burstable/podb/idb"},
		{own, "/../../../podb/idb", "/kubepods/podb/idb"},
		{own, "/../../../../system.slice/ssh.service", "/system.slice/ssh.service"},
		{own, "/../../../..", "/"},
		{own, "/..a", own + "/..a"},
		{unknown, "/", "…/"},
		{unknown, "/../../podb/idb", "…/podb/idb"},
		{unknown, "/../../../../system.slice/ssh.service", "/system.slice/ssh.service"},
	} {
		if got := fromCgroupRoot(c.namespace, c.path); got != c.want {
			t.Errorf("%s in %q: %q, want %q", c.path, c.namespace, got, c.want)
		}
	}
}

// containedEnv makes TestContainedProcCgroups a process of a container. Its value has pids and the
// paths of their cgroups.
const containedEnv = "HOSTFS_CONTAINED"

// In its own cgroup namespace, as in a container, a process reads the paths that the machine sees.
func TestProcCgroupsInContainer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make control groups and namespaces")
	}
	layout, err := FS{}.CgroupLayout()
	if err != nil || layout.Unified == "" {
		t.Skipf("no cgroup v2 hierarchy here: %v", err)
	}
	base := fmt.Sprintf("/hostfs-test-%d", os.Getpid())
	paths := []string{base, base + "/pod", base + "/pod/own", base + "/other"}
	for _, path := range paths {
		if err := os.Mkdir(layout.Unified+path, 0o755); err != nil {
			t.Skipf("cgroup2 is not writable here: %v", err)
		}
		t.Cleanup(func() {
			// A process that was waited for may still count for a moment.
			testenv.Until(t, "the control group can be removed", 20*time.Second, func() bool { return os.Remove(layout.Unified+path) == nil })
		})
	}
	start := func(path string, unshare uintptr, cmd *exec.Cmd) {
		t.Helper()
		dir, err := os.Open(layout.Unified + path)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Unshareflags: unshare}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for _, path := range paths[1:] {
		cmd := exec.Command("cat")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		start(path, 0, cmd)
		t.Cleanup(func() { _ = errors.Join(in.Close(), cmd.Wait()) })
		want = append(want, strconv.Itoa(cmd.Process.Pid)+":"+path)
	}
	machine, err := FS{}.ProcCgroups(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range machine {
		if g.Hierarchy == 0 {
			want = append(want, strconv.Itoa(os.Getpid())+":"+g.Path)
		}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestContainedProcCgroups$", "-test.v")
	cmd.Env = append(os.Environ(), containedEnv+"="+strings.Join(want, ","))
	out, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	start(base+"/pod/own", syscall.CLONE_NEWCGROUP|syscall.CLONE_NEWNS, cmd)
	err = cmd.Wait()
	text, readErr := os.ReadFile(out.Name())
	if err := errors.Join(err, readErr); err != nil || !strings.Contains(string(text), "\n--- PASS") {
		t.Errorf("in the container: %v\n%s", err, text)
	}
}

func TestContainedProcCgroups(t *testing.T) {
	want := os.Getenv(containedEnv)
	if want == "" {
		t.Skip("runs in a container of another test")
	}
	// The machine's mounts are still there, unlike in a container.
	dir := t.TempDir()
	if err := unix.Mount("cgroup", dir, "cgroup2", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, 0)
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || !strings.Contains(string(text), "0::/\n") {
		t.Fatalf("%v, want this process in the root:\n%s", err, text)
	}
	for process := range strings.SplitSeq(want, ",") {
		number, path, _ := strings.Cut(process, ":")
		pid, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		groups, err := FS{}.ProcCgroups(pid)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			if g.Hierarchy == 0 && g.Path != path {
				t.Errorf("process %d is in %s, want %s", pid, g.Path, path)
			}
		}
	}
}

// TestCgroupFinder creates a cgroup and finds it by its id, then removes it and finds that it is
// gone.
func TestCgroupFinder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a cgroup and for open_by_handle_at")
	}
	c, err := FS{}.OpenCgroupFinder()
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no cgroup2 mount on this machine")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir := filepath.Join(c.mount.Name(), fmt.Sprintf("hostfs-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("cgroup2 is not writable here: %v", err)
	}
	defer os.Remove(dir)
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	id := binary.NativeEndian.Uint64(handle.Bytes())

	got, err := c.Find(id)
	if errors.Is(err, unix.EPERM) {
		t.Skip("no CAP_DAC_READ_SEARCH here")
	}
	if want := "/" + filepath.Base(dir); err != nil || got != want {
		t.Errorf("Find = %q, %v; want %q", got, err, want)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Find(id); !errors.Is(err, unix.ESTALE) {
		t.Errorf("Find of a removed cgroup = %q, %v; want ESTALE", got, err)
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Errorf("Close twice: %v", err)
	}
}
