package bpf

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// containedEnv makes TestContained a process of a container with its own cgroup namespace. Its
// value is the inode of the network namespace whose connections it watches.
const containedEnv = "KERNOSIS_CONTAINED"

// contained starts the test run as a container runtime would: in a cgroup that it sees as the root.
func contained(t *testing.T, netns uint32, run string) (said func(prefix string) string, goOn func()) {
	t.Helper()
	root, err := openCgroupRoot()
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	dir, err := os.Open(testGroup(t, root.Name()))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command(os.Args[0], "-test.run", "^"+run+"$", "-test.v")
	cmd.Env = append(os.Environ(), containedEnv+"="+strconv.Itoa(int(netns)))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		UseCgroupFD: true, CgroupFD: int(dir.Fd()), Unshareflags: syscall.CLONE_NEWCGROUP | syscall.CLONE_NEWNS,
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	t.Cleanup(func() {
		for lines.Scan() {
			t.Log(lines.Text())
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("in the container: %v", err)
		}
	})
	return func(prefix string) string {
			t.Helper()
			for lines.Scan() {
				if rest, ok := strings.CutPrefix(lines.Text(), prefix); ok {
					return rest
				}
				t.Log(lines.Text())
			}
			t.Fatalf("the container said no %q", prefix)
			return ""
		}, func() {
			fmt.Fprintln(in)
		}
}

// testGroup creates a cgroup in the hierarchy of a mount.
func testGroup(t *testing.T, mount string) string {
	t.Helper()
	group := filepath.Join(mount, fmt.Sprintf("kernosis-test-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A process that was waited for may still count for a moment.
		testenv.Until(t, "the group can be removed", 20*time.Second, func() bool { return os.Remove(group) == nil })
	})
	return group
}

// inContainer sets up the mounts of a container, and returns the inode that contained passed.
func inContainer(t *testing.T) (netns uint32) {
	t.Helper()
	n, err := strconv.ParseUint(os.Getenv(containedEnv), 10, 32)
	if err != nil {
		t.Skip("runs in a container of another test")
	}
	if err := errors.Join(
		unix.Unmount("/sys/fs/cgroup", unix.MNT_DETACH),
		unix.Mount("cgroup", "/sys/fs/cgroup", "cgroup2", 0, ""),
	); err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

// connect() is detected in all cgroups, even by an agent in a container that sees its own cgroup as
// the root.
func TestConnectsOutsideTheContainer(t *testing.T) {
	testKernel(t)
	n := newTestNet(t)
	said, goOn := contained(t, n.inode, "TestContained")
	said("watching")
	// Without a route there is no packet and no change of state: on a kernel without fexit and
	// kprobes only the cgroup programs see it.
	n.dial(t, netip.MustParseAddrPort("192.0.2.1:9"), syscall.ENETUNREACH)
	goOn()
	if got := said("records "); got != "1" {
		t.Errorf("%s records of one connect() without a route", got)
	}
}

func TestContained(t *testing.T) {
	netns := inContainer(t)
	l := watch(t, testKernel(t), NewSockTargetKey(netns, netip.Addr{}, 9))
	for _, r := range l.Reports() {
		t.Logf("%s %s %s: %s", r.Hook, r.Program, r.State, r.Reason)
	}
	fmt.Println("\nwatching")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	records := 0
	end := time.Now().Add(testenv.Within(3 * time.Second))
	for records == 0 && time.Now().Before(end) {
		if err := l.SweepNeverSent(time.Duration(bootNow())); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Drain(func(raw []byte) {
			if h, err := ParseHeader(raw); err == nil && h.Kind == KindSockFail {
				records++
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("\nrecords", records)
}

// If the root can't be reached, no program is attached to a part of the hierarchy instead, and the
// reports say so.
func TestNoCgroupRoot(t *testing.T) {
	testKernel(t)
	said, goOn := contained(t, 1, "TestConfined")
	goOn()
	if got := said("reason "); !strings.Contains(got, "own control group") {
		t.Errorf("reason: %s", got)
	}
}

// Mounts with long lines, of whatever type, hide no other mount of the hierarchy.
func TestCgroupMountsLongLine(t *testing.T) {
	long := strings.Repeat("/l:", 40_000)
	got, err := cgroupMounts([]byte("1 0 0:9 / /layers rw - overlay none rw,lowerdir=" + long + "\n" +
		"2 0 0:26 / " + long + " rw - cgroup2 none rw\n" +
		"3 0 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup rw,nsdelegate\n"))
	if err != nil || len(got) != 1 || got[0].Mountpoint != "/sys/fs/cgroup" {
		t.Errorf("%d mounts, error %v; want the one at /sys/fs/cgroup", len(got), err)
	}
}

func TestConfined(t *testing.T) {
	inContainer(t)
	// Neither the root's handle nor init's mounts can be opened.
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
	caps[0].Effective &^= 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_SYS_PTRACE
	if err := unix.Capset(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
	l := openStem(t, sockfail(), testKernel(t), nil)
	l.AttachAll()
	defer rewatch(t, l)
	seen := 0
	for _, r := range l.Reports() {
		switch r.Program {
		case SockfailProgFollowOps, SockfailProgConnect4Cg, SockfailProgConnect6Cg:
			seen++
			if r.State != Forbidden {
				t.Errorf("%s is %s: %s", r.Program, r.State, r.Reason)
			}
			if r.Hook == hookConnect4 {
				fmt.Println("\nreason", r.Reason)
			}
		}
	}
	if seen != 3 {
		t.Errorf("%d programs on control groups in the reports", seen)
	}
}
