package netlook

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// Within calls fn on a thread in a namespace, and waits for it. Sockets that fn opens stay in the
// namespace; goroutines that it starts are not in it. pid is a process of the namespace, or 0 if
// it is this process's own.
//
// It has no deadline, because its uses don't wait for rtnl_lock: reading settings, connecting,
// packet sockets without memberships (promiscuous mode is one). Use [Ask] for what may wait for
// it, above all netlink requests.
func Within(fs hostfs.FS, inode uint32, pid int, fn func() error) error {
	if err := within(fs, inode, pid, fn); err != nil {
		return fmt.Errorf("in network namespace %d: %w", inode, err)
	}
	return nil
}

func within(fs hostfs.FS, inode uint32, pid int, fn func() error) error {
	if pid == 0 {
		if !own(inode) {
			return fmt.Errorf("network namespace %d has no process", inode)
		}
		fs, pid = hostfs.New("/"), os.Getpid()
	}
	ns, err := netns.GetFromPath(fs.Path(fmt.Sprintf("/proc/%d/ns/net", pid)))
	if err != nil {
		return fmt.Errorf("network namespace of process %d: %w", pid, err)
	}
	defer ns.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(ns), &st); err != nil {
		return fmt.Errorf("network namespace of process %d: %w", pid, err)
	}
	if uint32(st.Ino) != inode {
		return fmt.Errorf("network namespace of process %d is not %d", pid, inode)
	}
	return inNetNS(ns, fn)
}

// own reports whether inode is the namespace of this process.
func own(inode uint32) bool {
	var st unix.Stat_t
	return unix.Stat("/proc/self/ns/net", &st) == nil && uint32(st.Ino) == inode
}

// inNetNS runs fn on a thread in the namespace. If the thread can't be moved back it is not
// reused: the runtime terminates it with its goroutine.
func inNetNS(ns netns.NsHandle, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		defer home.Close()
		if ns.Equal(home) { // calling fn directly needs no privilege
			err := fn()
			runtime.UnlockOSThread()
			done <- err
			return
		}
		if err := netns.Set(ns); err != nil {
			runtime.UnlockOSThread()
			if errors.Is(err, unix.EPERM) {
				err = fmt.Errorf("enter it: %w (needs CAP_SYS_ADMIN)", err)
			}
			done <- err
			return
		}
		err = fn()
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}
