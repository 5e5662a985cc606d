package netlab

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Probe connects and, if there is a request, sends it and waits for the first byte of the response.
// Each of the two steps may take at most timeout; after that the error is [os.ErrDeadlineExceeded].
// Probe closes the connection. It may be called from any goroutine.
func (n *Net) Probe(to string, timeout time.Duration, request string) error {
	errs, err := n.Probes(1, to, timeout, request, false)
	if err != nil {
		return err
	}
	return errs[0]
}

// Probes does the same as count concurrent calls of Probe, but on one thread, and with exactly one
// connect() each: package net retries connects that found no free port. If whole is set, each waits
// for the end of the response: it succeeds when the peer has closed the connection. Probes returns
// the probes' errors.
func (n *Net) Probes(count int, to string, timeout time.Duration, request string, whole bool) ([]error, error) {
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		return nil, err
	}
	probes := make([]*probe, count)
	errs := make([]error, count)
	err = n.Do(func() error {
		for i := range probes {
			fd, err := socket(at.Addr())
			if err != nil {
				return errors.Join(err, closeAll(probes[:i]))
			}
			probes[i] = &probe{fd: fd, wants: unix.POLLOUT, doing: "connect", timeout: timeout, request: request, whole: whole}
		}
		for _, p := range probes {
			p.connect(at)
		}
		for active := probes; len(active) > 0; {
			var err error
			if active, err = step(active); err != nil {
				return errors.Join(err, closeAll(active))
			}
		}
		for i, p := range probes {
			errs[i] = p.err
		}
		return nil
	})
	return errs, err
}

type probe struct {
	fd      int
	wants   int16  // the events of poll(2) it waits for; 0 if it is done and fd is closed
	doing   string // for errors
	until   time.Time
	timeout time.Duration
	request string
	whole   bool // wait until the peer closes
	err     error
}

func (p *probe) connect(to netip.AddrPort) {
	p.until = time.Now().Add(p.timeout)
	if err := unix.Connect(p.fd, sockaddr(to)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		p.end(err)
	}
}

func (p *probe) end(err error) {
	p.wants = 0
	if err != nil {
		p.err = fmt.Errorf("%s: %w", p.doing, err)
	}
	if err := unix.Close(p.fd); err != nil {
		p.err = errors.Join(p.err, err)
	}
}

// ready continues the probe after the event it waited for.
func (p *probe) ready() {
	switch p.doing {
	case "connect":
		errno, err := unix.GetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			p.end(err)
		case errno != 0:
			p.end(unix.Errno(errno))
		case p.request == "":
			// A woken socket without an error may still not be connected; package net handles this
			// case too.
			_, err := unix.Getpeername(p.fd)
			p.end(err)
		default:
			p.doing = "write"
			if _, err := unix.Write(p.fd, []byte(p.request)); err != nil {
				p.end(err)
				return
			}
			p.doing, p.wants, p.until = "read", unix.POLLIN, time.Now().Add(p.timeout)
		}
	case "read":
		n, err := unix.Read(p.fd, make([]byte, 1))
		if err == nil && n > 0 && p.whole {
			return
		}
		if err == nil && n == 0 && !p.whole {
			err = io.ErrUnexpectedEOF
		}
		p.end(err)
	}
}

// step waits for events of any of the probes, handles them, and returns the probes that are not
// done.
func step(probes []*probe) (active []*probe, err error) {
	var polled []unix.PollFd
	var next time.Time
	for _, p := range probes {
		if p.wants == 0 {
			continue
		}
		active = append(active, p)
		polled = append(polled, unix.PollFd{Fd: int32(p.fd), Events: p.wants})
		if next.IsZero() || p.until.Before(next) {
			next = p.until
		}
	}
	if len(active) == 0 {
		return nil, nil
	}
	// Rounded up, so as not to spin during the last millisecond.
	_, err = unix.Poll(polled, int(max(time.Until(next).Milliseconds()+1, 0)))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return active, err
	}
	for i, p := range active {
		switch {
		case err == nil && polled[i].Revents != 0:
			p.ready()
		case !time.Now().Before(p.until):
			p.end(os.ErrDeadlineExceeded)
		}
	}
	return active, nil
}

func closeAll(probes []*probe) error {
	var errs []error
	for _, p := range probes {
		if p.wants != 0 {
			errs = append(errs, unix.Close(p.fd))
		}
	}
	return errors.Join(errs...)
}

func socket(of netip.Addr) (fd int, err error) {
	family := unix.AF_INET6
	if of.Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	return fd, os.NewSyscallError("socket", err)
}

func sockaddr(ap netip.AddrPort) unix.Sockaddr {
	if ap.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()}
}
