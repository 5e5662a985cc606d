package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func listen(port int) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(context.Background(), "tcp", fmt.Sprintf(":%d", port))
}

// serveAt serves the probed service at a port, and stops serving it at the previous one.
func (s *server) serveAt(port int) error {
	if err := s.unlisten(); err != nil {
		return err
	}
	l, err := listen(port)
	if err != nil {
		return err
	}
	s.listener, s.at = l, port
	go accept(l, s.plain)
	return nil
}

// neglectAt listens at a port without accepting. The queue holds backlog+1 connections.
func (s *server) neglectAt(port, backlog int) error {
	if err := s.unlisten(); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), "listener")
	err = errors.Join(
		os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)),
		os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrInet4{Port: port})),
		os.NewSyscallError("listen", unix.Listen(fd, backlog)))
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.listener = f
	return nil
}

func (s *server) unlisten() error {
	if s.listener == nil {
		return nil
	}
	err := s.listener.Close()
	s.listener, s.at = nil, 0
	return err
}

// fill fills the accept queue of a port.
func (s *server) fill(port int) error {
	for range 16 {
		c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), 200*time.Millisecond) //nolint:noctx // it has a time limit
		if err != nil {
			return nil //nolint:nilerr // full
		}
		s.kept = append(s.kept, c) // open until the process ends
	}
	return errors.New("the accept queue takes 16")
}

// threadTime returns the CPU time of this thread.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // every kernel has this clock
	return time.Duration(t.Nano())
}
