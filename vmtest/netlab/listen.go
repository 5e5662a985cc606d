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

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Listen returns a listener that accepts nothing until its Accept is called. Its accept queue holds
// backlog+1 connections.
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

// listen creates the socket itself because package net does not let the caller choose the backlog.
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
	return net.FileListener(f) // it duplicates the descriptor
}

// Serve accepts connections at an address until the returned listener is closed, or until the end
// of the test, and calls fn for each in its own goroutine. fn's reads and writes time out after
// conversation.
func (n *Net) Serve(at string, fn func(net.Conn)) net.Listener {
	n.t.Helper()
	var l net.Listener
	n.In(func() (err error) {
		var c net.ListenConfig
		// A closed listener keeps the address until its Accept has returned.
		for end := time.Now().Add(testenv.Within(conversation)); ; time.Sleep(10 * time.Millisecond) {
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

// conversation is the timeout of one connection of a server.
const conversation = 10 * time.Second

// Accept makes a listener returned by Listen behave like one returned by Serve. At the end of the
// test it closes the connections and waits for the calls of fn.
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

// Echo is a handler for Serve and Accept that sends back what it receives.
func Echo(c net.Conn) { _, _ = io.Copy(c, c) }

// Dial connects and returns the connection, which is closed at the end of the test at the latest.
func (n *Net) Dial(to string) net.Conn {
	n.t.Helper()
	var c net.Conn
	n.In(func() (err error) {
		d := net.Dialer{Timeout: testenv.Within(conversation)}
		c, err = d.DialContext(n.t.Context(), "tcp", to)
		return err
	})
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}
