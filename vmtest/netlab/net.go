// Package netlab creates networks for tests: separate network namespaces, connected by veth pairs,
// with the conditions that a connection can encounter: listeners that accept or don't, routes,
// unreachable neighbours. It does not affect the machine's own network, and everything is removed
// at the end of the test.
//
// Only tests may import it.
package netlab

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Net is a network namespace with a process in it, so that it is visible in /proc. Methods that
// return no error fail the test that the Net was created for, and must be called in that test's
// goroutine.
type Net struct {
	Inode uint32 // inode number, which identifies it on this machine

	t  testing.TB
	ns netns.NsHandle
}

// New returns a namespace that contains only a loopback device, which is up. Without root the test
// is skipped.
func New(t testing.TB) *Net {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make network namespaces")
	}
	n := &Net{t: t}
	done := make(chan error)
	onOwnThread(func() {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.ns, err = netns.Get()
		}
		done <- err
	})
	if err := <-done; err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() {
		if err := n.ns.Close(); err != nil {
			t.Error(err)
		}
	})
	hold(t, n.Do) // a forked process is in the namespace of its thread
	var st unix.Stat_t
	if err := unix.Fstat(int(n.ns), &st); err != nil {
		t.Fatal(err)
	}
	n.Inode = uint32(st.Ino) // inode numbers in proc always fit
	n.In(func() error { return setUp("lo") })
	return n
}

// Do calls fn on a thread in the namespace. Sockets and processes created by fn stay in it. Do may
// be called from any goroutine.
func (n *Net) Do(fn func() error) error {
	done := make(chan error)
	onOwnThread(func() {
		if err := netns.Set(n.ns); err != nil {
			done <- fmt.Errorf("enter network namespace %d: %w", n.Inode, err)
			return
		}
		done <- fn()
	})
	return <-done
}

// onOwnThread calls fn on a thread that ends afterwards. That must not be the main thread: it never
// ends, and its namespace is shown as the process's. In that case it waits while fn runs on another
// thread.
func onOwnThread(fn func()) {
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		if unix.Gettid() != os.Getpid() {
			fn()
			return
		}
		done := make(chan struct{})
		onOwnThread(func() { defer close(done); fn() })
		<-done
		runtime.UnlockOSThread()
	}()
}

// In is Do for functions that must not fail.
func (n *Net) In(fn func() error) {
	n.t.Helper()
	if err := n.Do(fn); err != nil {
		n.t.Fatal(err)
	}
}

// Command runs a program in the namespace and returns its output.
func (n *Net) Command(name string, args ...string) string {
	n.t.Helper()
	var out []byte
	n.In(func() (err error) {
		out, err = exec.CommandContext(n.t.Context(), name, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
		}
		return nil
	})
	return string(out)
}

func setUp(device string) error {
	l, err := netlink.LinkByName(device)
	if err == nil {
		err = netlink.LinkSetUp(l)
	}
	if err != nil {
		return fmt.Errorf("set %s up: %w", device, err)
	}
	return nil
}

// Holder starts a process in the network namespace of this process and returns its PID; it ends
// with the test. This process itself is not usable, because its first thread may be in a namespace
// of the lab.
func Holder(t testing.TB) (pid int) {
	t.Helper()
	return hold(t, func(start func() error) error { return start() })
}

// hold starts, through in, a process that does nothing until the end of the test. It waits for its
// input to end, which happens even if this process is killed.
func hold(t testing.TB, in func(start func() error) error) (pid int) {
	t.Helper()
	holder := exec.Command("sh", "-c", "read _")
	stdin, err := holder.StdinPipe()
	if err == nil {
		err = in(holder.Start)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close(); _ = holder.Wait() })
	return holder.Process.Pid
}
