package netlook

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// View queries one network namespace over netlink. Close it after use, because it keeps the
// namespace alive. It is not safe for concurrent use.
type View struct {
	route *netlink.Handle
	neigh *nl.NetlinkSocket // of the same family: Handle can't request a single neighbour
	diag  *nl.NetlinkSocket
	seq   uint32

	within time.Duration
	left   bool // a request was abandoned, and still uses the sockets

	mu     sync.Mutex
	asking int // requests whose calls have not returned
	closed bool
}

// maxBehind bounds the threads of this process that wait in the kernel for abandoned requests.
const maxBehind = 4

// calls are all requests of this process: most wait for the same kernel lock.
//
//nolint:gochecknoglobals // threads are the process's
var calls = bounded.Calls{Max: maxBehind}

// Ask makes a request with the view's NETLINK_ROUTE handle, if View has no method for it.
//
// A netlink request may wait for rtnl_lock in uninterruptible sleep, where a socket timeout has no
// effect. So ask runs on a thread of its own. If it takes more than twice the view's timeout, it
// is abandoned together with the view: Ask returns [bounded.ErrLate], then and for each later
// request to this view. ask must own what it uses.
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

// done records that a request's call has returned.
func (v *View) done() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.asking--; v.asking == 0 && v.closed {
		v.release()
	}
}

// Open opens the view of a namespace through process pid, which must be in it, or without a
// process (pid 0) if it is this process's own namespace. timeout bounds each answer; see [Ask].
func Open(fs hostfs.FS, inode uint32, pid int, timeout time.Duration) (*View, error) {
	const open, taken, left = 0, 1, 2
	var state atomic.Int32
	v, err := bounded.Do(&calls, 2*timeout, func() (*View, error) {
		v, err := openNow(fs, inode, pid, timeout)
		if err == nil && !state.CompareAndSwap(open, taken) {
			v.Close() // the caller has given up
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
		// netns.None means the namespace of the current thread.
		if v.neigh, err = nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE); err != nil {
			return err
		}
		v.diag, err = nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_INET_DIAG)
		return err
	})
	if err == nil {
		tv := unix.NsecToTimeval(int64(timeout))
		err = errors.Join(v.route.SetSocketTimeout(timeout), v.neigh.SetSendTimeout(&tv), v.neigh.SetReceiveTimeout(&tv),
			v.diag.SetSendTimeout(&tv), v.diag.SetReceiveTimeout(&tv))
	}
	if err != nil {
		v.Close()
		return nil, fmt.Errorf("netlink in namespace %d: %w", inode, err)
	}
	return v, nil
}

// Close closes the sockets, or leaves that to the abandoned request that still uses them. It is
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

// Metrics returns the metrics of this process's requests to the kernel, read at each scrape.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "kernosis_lookups_late_total", Help: "Queries about a network namespace that the kernel did not answer in time.",
		}, func() float64 { return float64(calls.Stats().Late) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "kernosis_lookups_refused_total", Help: "Queries about a network namespace that were skipped because the kernel still holds earlier ones.",
		}, func() float64 { return float64(calls.Stats().Refused) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kernosis_lookups_held", Help: "Threads that the kernel holds in a query about a network namespace.",
		}, func() float64 { return float64(calls.Stats().Behind) }),
	}
}
