package netlab

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Probe connects and, with a request, waits for the first byte of an answer, at
// most for the time given for each of the two; then the error is
// [os.ErrDeadlineExceeded]. It closes the connection, and may be called from any
// goroutine. It connects once: package net repeats a connect() that found no free port.
func (n *Net) Probe(to string, timeout time.Duration, request string) error {
	return n.probe(to, timeout, request, false)
}

// Probes calls Probe count times at the same time, and returns the errors.
func (n *Net) Probes(count int, to string, timeout time.Duration, request string) []error {
	return n.probes(count, to, timeout, request, false)
}

// Requests does what Probes does, but for the end of the answer: a probe is well when
// the peer has closed the connection.
func (n *Net) Requests(count int, to string, timeout time.Duration, request string) []error {
	return n.probes(count, to, timeout, request, true)
}

func (n *Net) probes(count int, to string, timeout time.Duration, request string, whole bool) []error {
	errs := make([]error, count)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = n.probe(to, timeout, request, whole) })
	}
	all.Wait()
	return errs
}

func (n *Net) probe(to string, timeout time.Duration, request string, whole bool) error {
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		return err
	}
	return n.Do(func() error {
		fd, err := socket(at.Addr())
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := connect(fd, at, timeout); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		if request == "" {
			return nil
		}
		if _, err := unix.Write(fd, []byte(request)); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if err := read(fd, timeout, whole); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		return nil
	})
}

func connect(fd int, to netip.AddrPort, timeout time.Duration) error {
	until := time.Now().Add(timeout)
	if err := unix.Connect(fd, sockaddr(to)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	if err := wait(fd, unix.POLLOUT, until); err != nil {
		return err
	}
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = unix.Errno(errno)
	}
	return err
}

// read reads one byte, or the whole answer.
func read(fd int, timeout time.Duration, whole bool) error {
	for until := time.Now().Add(timeout); ; {
		if err := wait(fd, unix.POLLIN, until); err != nil {
			return err
		}
		switch n, err := unix.Read(fd, make([]byte, 1)); {
		case err != nil:
			return err
		case n == 0 && !whole:
			return io.ErrUnexpectedEOF
		case n == 0 || !whole:
			return nil
		}
	}
}

// wait waits until a socket can be read from or written to.
func wait(fd int, events int16, until time.Time) error {
	for {
		// Rounded up, or it would spin in the last millisecond.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, int(max(time.Until(until).Milliseconds()+1, 0)))
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case !time.Now().Before(until):
			return os.ErrDeadlineExceeded
		}
	}
}
