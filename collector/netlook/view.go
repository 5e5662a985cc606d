package netlook

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// View asks one network namespace over netlink. It must not outlive the look it was
// opened for: it keeps the namespace alive. It is not safe for concurrent use.
type View struct {
	route *netlink.Handle
	neigh *nl.NetlinkSocket // of the same family: Handle has no way to ask for one neighbour
	diag  *nl.NetlinkSocket
	seq   uint32
}

// Open opens the view of a namespace through a process that is in it, or without one
// (pid 0) if it is this process' own. timeout bounds each answer.
func Open(fs hostfs.FS, inode uint32, pid int, timeout time.Duration) (*View, error) {
	v := &View{}
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

// Netlink is the view's NETLINK_ROUTE handle, for what View has no question for. It is
// the view's own: it is closed with it.
func (v *View) Netlink() *netlink.Handle { return v.route }

// Close gives the sockets back. It is idempotent.
func (v *View) Close() {
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
