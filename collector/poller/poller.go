// Package poller waits for kernel descriptors that deliver records: ring buffers of BPF programs,
// the kernel's log.
package poller

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Poller waits until any of several descriptors is readable.
//
// It uses Go's own poller, which watches an epoll instance that watches the descriptors. A thread
// blocked in a system call keeps its processor for 10 ms. Meanwhile the runtime's monitor
// (sysmon) checks it, at first every 20 µs, which costs more than handling the few records of a
// quiet node. For the same reason system calls that never block bypass the runtime, so that they
// don't wake its monitor.
//
// After a descriptor became readable, the Poller ignores it until the next Wait, so a caller that
// lets records accumulate is not woken for each.
type Poller struct {
	epoll  *os.File
	conn   syscall.RawConn
	fds    []int
	closed atomic.Bool

	// Used by Wait; they are fields so that Wait allocates nothing.
	armed  bool
	events [8]unix.EpollEvent
	failed error
	ready  func(fd uintptr) bool
}

// New returns a Poller for the given descriptors, which it does not close.
func New(fds ...int) (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	// [os.NewFile] uses the runtime's poller only for non-blocking descriptors.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("create epoll: %w", err), unix.Close(fd))
	}
	p := &Poller{epoll: os.NewFile(uintptr(fd), "epoll"), fds: fds, armed: true}
	p.ready = p.look
	if p.conn, err = p.epoll.SyscallConn(); err == nil {
		err = watch(fd, unix.EPOLL_CTL_ADD, fds)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watch descriptors: %w", err), p.Close())
	}
	return p, nil
}

// watch arms each descriptor for its next event only.
func watch(epoll, op int, fds []int) error {
	for _, fd := range fds {
		ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)}
		if err := unix.EpollCtl(epoll, op, fd, &ev); err != nil {
			return err
		}
	}
	return nil
}

// Wait returns when a descriptor is readable, at the latest after atMost; a negative atMost means
// no limit. It returns [os.ErrClosed] once [Poller.Close] was called. It is for one goroutine.
func (p *Poller) Wait(atMost time.Duration) error {
	var deadline time.Time
	if atMost >= 0 {
		deadline = time.Now().Add(atMost)
	}
	err := p.epoll.SetReadDeadline(deadline)
	if err == nil {
		p.failed = nil
		err = p.conn.Read(p.ready)
	}
	if err == nil {
		err = p.failed
	}
	switch {
	case p.closed.Load():
		return os.ErrClosed
	case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("wait for records: %w", err)
	}
	return nil
}

// look reports whether a descriptor is readable.
func (p *Poller) look(fd uintptr) bool {
	if !p.armed {
		if p.failed = watch(int(fd), unix.EPOLL_CTL_MOD, p.fds); p.failed != nil {
			return true
		}
		p.armed = true
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd, uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)), 0, 0, 0)
	switch errno {
	case 0:
	case unix.EINTR:
		return false
	default:
		p.failed = errno
		return true
	}
	p.armed = n == 0
	return n > 0
}

// Close ends the current and all later calls of Wait, and releases what New opened. It may be
// called more than once, from any goroutine.
func (p *Poller) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	return p.epoll.Close()
}
