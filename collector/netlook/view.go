package netlook

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// View asks one network namespace over netlink. It must not outlive the look it was
// opened for: it keeps the namespace alive. It is not safe for concurrent use.
type View struct {
	route *netlink.Handle
	neigh *nl.NetlinkSocket // of the same family: Handle has no way to ask for one neighbour
	diag  *nl.NetlinkSocket
	seq   uint32

	within time.Duration
	left   bool // a question was left behind: the sockets are its own now

	mu     sync.Mutex
	asking int // questions whose calls have not returned
	closed bool
}

// maxBehind bounds the threads of this process that wait in the kernel for an answer that
// nobody wants any more.
const maxBehind = 4

// calls are all questions of this process: most wait for one lock of the kernel.
//
//nolint:gochecknoglobals // threads are the process's
var calls = bounded.Calls{Max: maxBehind}

// Ask asks a question by the view's NETLINK_ROUTE handle, for what View has no method for.
//
// A netlink request may wait for rtnl_lock in uninterruptible sleep, where no time-out of a
// socket reaches it. So ask runs on a thread of its own. One that takes more than twice the
// view's time is left behind, with the view: Ask returns [bounded.ErrLate], now and for each
// question to this view from then on. ask must own what it uses.
func Ask[T any](v *View, ask func(*netlink.Handle) (T, error)) (T, error) {
	var none T
	if v.left {
		return none, bounded.ErrLate
	}
	v.mu.Lock()
	v.asking++
	v.mu.Unlock()
	answer, err := bounded.Do(&calls, v.within, func() (T, error) {
		defer v.done()
		return ask(v.route)
	})
	switch {
	case errors.Is(err, bounded.ErrRefused):
		v.done()
	case errors.Is(err, bounded.ErrLate):
		v.left = true
	}
	return answer, err
}

// done notes that a question's call has returned.
func (v *View) done() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.asking--; v.asking == 0 && v.closed {
		v.release()
	}
}

// Open opens the view of a namespace through a process that is in it, or without one
// (pid 0) if it is this process' own. timeout bounds each answer; see [Ask].
func Open(fs hostfs.FS, inode uint32, pid int, timeout time.Duration) (*View, error) {
	const open, taken, left = 0, 1, 2
	var state atomic.Int32
	v, err := bounded.Do(&calls, 2*timeout, func() (*View, error) {
		v, err := openNow(fs, inode, pid, timeout)
		if err == nil && !state.CompareAndSwap(open, taken) {
			v.Close() // nobody waits for it any more
		}
		return v, err
	})
	if errors.Is(err, bounded.ErrLate) {
		state.CompareAndSwap(open, left)
		return nil, fmt.Errorf("netlink in namespace %d: %w", inode, err)
	}
	return v, err
}

func openNow(fs hostfs.FS, inode uint32, pid int, timeout time.Duration) (*View, error) {
	v := &View{within: 2 * timeout}
	err := within(fs, inode, pid, func() error {
		var err error
		if v.route, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		// No namespace: the one the thread is in.
		if v.neigh, err = nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE); err != nil {
			return err
		}
		v.diag, err = nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_INET_DIAG)
		return err
	})
	if err == nil {
		err = v.setTimeout(timeout)
	}
	if err != nil {
		v.Close()
		return nil, fmt.Errorf("netlink in namespace %d: %w", inode, err)
	}
	return v, nil
}

func (v *View) setTimeout(d time.Duration) error {
	tv := unix.NsecToTimeval(int64(d))
	return errors.Join(v.route.SetSocketTimeout(d), v.neigh.SetSendTimeout(&tv), v.neigh.SetReceiveTimeout(&tv), v.diag.SetSendTimeout(&tv), v.diag.SetReceiveTimeout(&tv))
}

// Close gives the sockets back, when no question that was left behind has them. It is
// idempotent.
func (v *View) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	if v.closed = true; v.asking == 0 {
		v.release()
	}
}

func (v *View) release() {
	if v.route != nil {
		v.route.Close()
	}
	if v.neigh != nil {
		v.neigh.Close()
	}
	if v.diag != nil {
		v.diag.Close()
	}
}
