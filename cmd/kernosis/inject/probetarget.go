package inject

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The ways a listening probe target behaves.
const (
	behaveAnswer = "answer" // 200 OK
	behaveReset  = "reset"  // reads the request, then resets
	behaveSilent = "silent" // reads the request and never answers
	behaveSlow   = "slow"   // reads the request and begins an answer that never ends
	behaveIdle   = "idle"   // never accepts; its queue is filled
)

// targetRequest asks the target to listen on Addr, or to change its behaviour if it already listens.
type targetRequest struct {
	Addr   string `json:"addr"`
	Behave string `json:"behave"`
}

// targetReply reports the accept queue of an idle target.
type targetReply struct {
	Queued uint32 `json:"queued"`
	Max    uint32 `json:"max"`
}

// probeTarget runs the process that is probed, in a network namespace of its own.
func probeTarget([]string) error {
	if _, err := setComm("kn-target"); err != nil {
		return err
	}
	t := &targetServer{}
	return serve(func(q targetRequest) (targetReply, error) {
		if err := t.listen(q.Addr, q.Behave); err != nil {
			return targetReply{}, fmt.Errorf("listen on %s: %w", q.Addr, err)
		}
		if q.Behave != behaveIdle {
			return targetReply{}, nil
		}
		return t.fillQueue(q.Addr)
	})
}

// targetServer is the listener. Its methods are called by one goroutine.
type targetServer struct {
	listener  *net.TCPListener
	behave    atomic.Value // string
	accepting bool
	queued    []net.Conn // our own connections in the accept queue
}

func (t *targetServer) listen(addr, behave string) error {
	t.behave.Store(behave)
	if t.listener == nil {
		var lc net.ListenConfig
		lc.SetMultipathTCP(false) // would double the socket's state events
		l, err := lc.Listen(context.Background(), "tcp4", addr)
		if err != nil {
			return err
		}
		t.listener = l.(*net.TCPListener)
	}
	if behave == behaveIdle || t.accepting {
		return nil
	}
	t.accepting = true
	for _, c := range t.queued {
		_ = c.Close()
	}
	go func() {
		for {
			c, err := t.listener.AcceptTCP()
			if err != nil {
				return
			}
			go t.answer(c)
		}
	}()
	return nil
}

// answer handles one connection by the behaviour in force when its request is read.
func (t *targetServer) answer(c *net.TCPConn) {
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(askLimit)); err != nil {
		return
	}
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	_ = req.Body.Close()
	switch t.behave.Load() {
	case behaveReset:
		_ = c.SetLinger(0) // the close then sends a reset
	case behaveSilent:
		_, _ = c.Read(make([]byte, 1)) // until the prober gives up
	case behaveSlow:
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\no")
		_, _ = c.Read(make([]byte, 1))
	default:
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n")
	}
}

// fillQueue makes the accept queue as short as possible and fills it with connections from
// inside the namespace.
func (t *targetServer) fillQueue(addr string) (targetReply, error) {
	raw, err := t.listener.SyscallConn()
	if err != nil {
		return targetReply{}, err
	}
	var q targetReply
	state := func(fd uintptr) {
		// For a listener, these two are the queue's length and limit.
		var info *unix.TCPInfo
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			q = targetReply{Queued: info.Unacked, Max: info.Sacked}
		}
	}
	// listen(2) again only changes the limit.
	if e := raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 1) }); e != nil || err != nil {
		return q, fmt.Errorf("shorten accept queue: %w", errors.Join(e, err))
	}
	// The kernel accepts connections while the queue is not longer than its limit.
	dialer := net.Dialer{Timeout: time.Second}
	for range 8 {
		before := q.Queued
		c, dialErr := dialer.DialContext(context.Background(), "tcp4", addr)
		if dialErr != nil {
			return q, fmt.Errorf("fill accept queue: %w", dialErr)
		}
		t.queued = append(t.queued, c)
		// The client's end is established before the listener's.
		wait := waitFor(context.Background(), time.Second, "queued connection", func() (bool, error) {
			return q.Queued > before, errors.Join(raw.Control(state), err)
		})
		if wait != nil {
			return q, fmt.Errorf("fill accept queue: %w", wait)
		}
		if q.Queued > q.Max {
			return q, nil
		}
	}
	return q, fmt.Errorf("fill accept queue: not full at %d of %d", q.Queued, q.Max)
}
