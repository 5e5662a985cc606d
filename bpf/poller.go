package bpf

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Poller waits for records in any of several rings.
type Poller struct {
	epoll int
	wake  int

	mu     sync.Mutex
	closed bool
}

// NewPoller returns a Poller of the given rings.
func NewPoller(rings ...*Ring) (*Poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create eventfd: %w", err), unix.Close(epoll))
	}
	p := &Poller{epoll: epoll, wake: wake}
	fds := []int{wake}
	for _, r := range rings {
		fds = append(fds, r.fd)
	}
	for _, fd := range fds {
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
			return nil, errors.Join(fmt.Errorf("watch ring: %w", err), p.Close())
		}
	}
	return p, nil
}

// Wait returns when a ring has records, at the latest after the given time. It
// returns [os.ErrClosed] once [Poller.Wake] was called.
func (p *Poller) Wait(atMost time.Duration) error {
	var events [8]unix.EpollEvent
	n, err := unix.EpollWait(p.epoll, events[:], int(atMost.Milliseconds()))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("wait for records: %w", err)
	}
	for i := range max(n, 0) {
		if events[i].Fd == int32(p.wake) {
			return os.ErrClosed
		}
	}
	return nil
}

// Wake ends the present and all later calls of Wait. It is safe to call from
// another goroutine.
func (p *Poller) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		// An eventfd whose counter is not at its limit takes the write.
		_, _ = unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// Close releases the descriptors. Wait must have returned. It may be called
// more than once.
func (p *Poller) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	return errors.Join(unix.Close(p.wake), unix.Close(p.epoll))
}
