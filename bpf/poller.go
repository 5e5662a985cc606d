package bpf

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Poller waits for records in any of several rings.
//
// It does so by Go's own poller, which watches its epoll instance. A thread that is
// blocked in a system call keeps its processor for 10 ms, and while it does, the
// runtime's monitor (sysmon) looks after it, first every 20 µs: for the few records of a
// quiet node that costs more than to handle them.
type Poller struct {
	epoll  *os.File
	conn   syscall.RawConn
	closed atomic.Bool

	// Of Wait; here so that a wait allocates nothing.
	events [8]unix.EpollEvent
	failed error
	ready  func(fd uintptr) bool
}

// NewPoller returns a Poller of the given rings.
func NewPoller(rings ...*Ring) (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	// What is not non-blocking, [os.NewFile] does not hand to the poller.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("create epoll: %w", err), unix.Close(fd))
	}
	p := &Poller{epoll: os.NewFile(uintptr(fd), "epoll")}
	p.ready = p.look
	for _, r := range rings {
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(r.fd)}
		if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, r.fd, &ev); err != nil {
			return nil, errors.Join(fmt.Errorf("watch ring: %w", err), p.Close())
		}
	}
	if p.conn, err = p.epoll.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("watch ring: %w", err), p.Close())
	}
	return p, nil
}

// Wait returns when a ring has records, at the latest after the given time. It
// returns [os.ErrClosed] once [Poller.Close] was called. It is for one goroutine.
func (p *Poller) Wait(atMost time.Duration) error {
	err := p.epoll.SetReadDeadline(time.Now().Add(atMost))
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

// look tells whether a ring has records.
func (p *Poller) look(fd uintptr) bool {
	n, err := unix.EpollWait(int(fd), p.events[:], 0)
	if err != nil && !errors.Is(err, unix.EINTR) {
		p.failed = err
	}
	return n > 0 || p.failed != nil
}

// Close ends the present and all later calls of Wait, and releases the descriptor. It
// may be called more than once, from any goroutine.
func (p *Poller) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	return p.epoll.Close()
}
