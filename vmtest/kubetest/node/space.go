package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// space is a thread of this process with its own network and mount namespace. Programs that it
// starts are in them too.
type space struct {
	net   netns.NsHandle
	calls chan func()
	end   chan struct{}
	done  chan struct{}
}

// newSpace returns a space with a private copy of the machine's mounts: changes do not propagate in
// either direction.
func newSpace() (*space, error) {
	s := &space{calls: make(chan func()), end: make(chan struct{}), done: make(chan struct{})}
	made := make(chan error)
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			s.net, err = netns.Get()
		}
		made <- err
		for err == nil {
			select {
			case call := <-s.calls:
				call()
			case <-s.end:
				return
			}
		}
	}()
	if err := <-made; err != nil {
		return nil, fmt.Errorf("make namespaces: %w", err)
	}
	return s, nil
}

// do calls fn on the thread, one call at a time. Programs started by fn may request a signal when
// the thread ends, which is when the space is closed.
func (s *space) do(fn func() error) error {
	err := make(chan error, 1)
	select {
	case s.calls <- func() { err <- fn() }:
		return <-err
	case <-s.done:
		return errors.New("the node has ended")
	}
}

// dial connects from within the network namespace. Calls run concurrently.
func (s *space) dial(ctx context.Context, network, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	got := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // as above
		if err := netns.Set(s.net); err != nil {
			got <- result{err: fmt.Errorf("enter the node's network: %w", err)}
			return
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, address)
		got <- result{conn, err}
	}()
	r := <-got
	return r.conn, r.err
}

// close ends the thread. The namespaces vanish when no program is left in them.
func (s *space) close() error {
	close(s.end)
	<-s.done
	return s.net.Close()
}
