// Package netlab makes networks for tests: network namespaces of the test's own,
// joined by veth pairs, and in them what a connection can meet: listeners that
// accept or don't, routes, neighbours that are not there. Nothing of it reaches
// the machine's own network, and all of it ends with the test.
//
// It must not be imported by anything but tests.
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

// Net is a network namespace with a process in it, so that /proc shows it. Its
// methods fail the test it was made for, and must be called on that test's own
// goroutine, unless they return an error.
type Net struct {
	Inode uint32 // its identity on this machine

	t  testing.TB
	ns netns.NsHandle
}

// New returns a namespace in which nothing is but a loopback device that is up.
// Without root the test is skipped.
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
	hold(t, n.Do) // a forked process is in its thread's namespace
	var st unix.Stat_t
	if err := unix.Fstat(int(n.ns), &st); err != nil {
		t.Fatal(err)
	}
	n.Inode = uint32(st.Ino) // a proc inode number: always fits
	n.In(func() error { return setUp("lo") })
	return n
}

// Do calls fn on a thread in the namespace. Sockets and processes that fn makes
// stay in it. It may be called from any goroutine.
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

// onOwnThread calls fn on a thread that ends with it. The main thread never ends, and its
// namespace shows as that of the process: fn runs on another one, and it waits.
func onOwnThread(fn func()) {
	go func() {
		runtime.LockOSThread() // and never unlocked: so the thread ends with the goroutine
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

// In is Do for what must not fail.
func (n *Net) In(fn func() error) {
	n.t.Helper()
	if err := n.Do(fn); err != nil {
		n.t.Fatal(err)
	}
}

// Command runs a program in the namespace and returns what it prints.
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

// Holder returns a process in the network namespace of this process, until the test's
// end. This process would not do: its first thread may live in a namespace of the lab.
func Holder(t testing.TB) (pid int) {
	t.Helper()
	return hold(t, func(start func() error) error { return start() })
}

// hold starts a process, within a call of in, that does nothing until the test's end. It waits
// for its input to end, which it does with this process, whatever becomes of it.
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
