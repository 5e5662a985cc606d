package netlab

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/await"
)

// Listen returns a listener that accepts nothing before a call of its Accept. Its accept
// queue takes backlog+1 connections.
func (n *Net) Listen(at string, backlog int) net.Listener {
	n.t.Helper()
	ap, err := netip.ParseAddrPort(at)
	if err != nil {
		n.t.Fatal(err)
	}
	var l net.Listener
	n.In(func() (err error) {
		l, err = listen(ap, backlog)
		return err
	})
	n.t.Cleanup(func() { _ = l.Close() })
	return l
}

// listen does it by hand: package net chooses the backlog itself.
func listen(at netip.AddrPort, backlog int) (net.Listener, error) {
	fd, err := socket(at.Addr())
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), at.String())
	defer f.Close()
	err = errors.Join(
		os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)),
		os.NewSyscallError("bind", unix.Bind(fd, sockaddr(at))),
		os.NewSyscallError("listen", unix.Listen(fd, backlog)))
	if err != nil {
		return nil, err
	}
	return net.FileListener(f) // has a descriptor of its own
}

// Serve accepts connections at an address until the returned listener is closed,
// at the latest at the test's end, and handles each with fn on a goroutine of its
// own. fn's reads and writes fail after conversation.
func (n *Net) Serve(at string, fn func(net.Conn)) net.Listener {
	n.t.Helper()
	var l net.Listener
	n.In(func() (err error) {
		var c net.ListenConfig
		// A listener that was closed keeps the address until its Accept has noticed.
		for end := time.Now().Add(await.Within(conversation)); ; time.Sleep(10 * time.Millisecond) {
			l, err = c.Listen(n.t.Context(), "tcp", at)
			if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(end) {
				return err
			}
		}
	})
	n.t.Cleanup(func() { _ = l.Close() })
	n.Accept(l, fn)
	return l
}

// conversation bounds one connection of a server.
const conversation = 10 * time.Second

// Accept has what Listen returned behave as what Serve returns. At the test's end the
// connections are closed, and fn's calls waited for.
func (n *Net) Accept(l net.Listener, fn func(net.Conn)) {
	var all sync.WaitGroup
	var mu sync.Mutex
	open, ended := map[net.Conn]bool{}, false
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			mu.Lock()
			open[c] = true
			if ended {
				_ = c.Close()
			}
			mu.Unlock()
			all.Go(func() {
				defer func() {
					_ = c.Close()
					mu.Lock()
					delete(open, c)
					mu.Unlock()
				}()
				if c.SetDeadline(time.Now().Add(conversation)) == nil {
					fn(c)
				}
			})
		}
	})
	n.t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		ended = true
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
}

// Echo is a handler for Serve and Accept that sends back what comes.
func Echo(c net.Conn) { _, _ = io.Copy(c, c) }

// Dial connects and returns the connection, which is closed at the test's end
// or before.
func (n *Net) Dial(to string) net.Conn {
	n.t.Helper()
	var c net.Conn
	n.In(func() (err error) {
		d := net.Dialer{Timeout: await.Within(conversation)}
		c, err = d.DialContext(n.t.Context(), "tcp", to)
		return err
	})
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}
