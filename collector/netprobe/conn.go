package netprobe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Conn is what the probe's end knows about a connection. Counts are bytes.
type Conn struct {
	Local, Remote netip.AddrPort // invalid if there was no connection
	Sent          uint64         // written by the probe
	Acked         uint64         // of these, acknowledged by the other end's kernel
	Received      uint64         // read by the probe
	RTT           time.Duration  // as measured by TCP
	Retransmits   uint32         // total
	Err           error          // of the latest read or write that failed; io.EOF: the peer closed the connection
}

// conn is a connection that counts its traffic.
type conn struct {
	net.Conn
	ctx context.Context // of the probe
	raw syscall.RawConn

	mu      sync.Mutex
	known   Conn
	written uint64 // bytes of the writes that have returned
	closed  bool
}

// dial connects to the probe's address only.
func (p *Probe) dial(at *Progress, port uint16) (net.Conn, error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			set = os.NewSyscallError("setsockopt", unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 1}))
		})
		return errors.Join(err, set)
	}}
	to := netip.AddrPortFrom(p.To.Addr(), port)
	began := time.Now()
	var c net.Conn
	// Dial an IP address, so that the socket is created on the calling thread.
	connect := func() (err error) {
		c, err = d.DialContext(at.ctx, "tcp", to.String())
		return err
	}
	var err error
	if p.From == nil {
		err = connect()
	} else {
		err = p.From(connect)
	}
	if err != nil {
		if c != nil {
			_ = c.Close()
		}
		return nil, err
	}
	took := time.Since(began)
	counted, err := newConn(at.ctx, c, to)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	at.mu.Lock()
	ended := at.ended
	if !ended {
		at.r.Connect, at.r.Phase = took, PhaseRequest
		at.conns = append(at.conns, counted)
	}
	at.mu.Unlock()
	if ended {
		return nil, errors.Join(net.ErrClosed, counted.Close())
	}
	if p.Connected != nil {
		if err := p.Connected(to, counted.known.Local); err != nil {
			return nil, errors.Join(err, counted.Close())
		}
	}
	return counted, nil
}

func newConn(ctx context.Context, c net.Conn, to netip.AddrPort) (*conn, error) {
	tcp, ok := c.(*net.TCPConn)
	local, isTCP := c.LocalAddr().(*net.TCPAddr)
	if !ok || !isTCP {
		return nil, fmt.Errorf("unsupported type of connection %T", c)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	from := local.AddrPort()
	out := &conn{Conn: c, ctx: ctx, raw: raw}
	out.known = Conn{Local: netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), Remote: to}
	out.ask()
	return out, nil
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.Received += uint64(n)
	c.fault(err)
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() == nil { // ignore TLS's close notification after the probe's end
		c.written += uint64(n)
		c.known.Sent = max(c.known.Sent, c.written)
		c.fault(err)
	}
	return n, err
}

// fault keeps the first error, because later ones follow from it. It ignores errors that this end
// has caused.
func (c *conn) fault(err error) {
	if err != nil && c.known.Err == nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.known.Err = err
	}
}

// Close closes the connection. It may be called again.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	c.ask()
	return c.Conn.Close()
}

// facts returns what is known about the connection.
func (c *conn) facts() Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.ask()
	}
	return c.known
}

// ask updates the connection's facts from the kernel. Without an answer it keeps the earlier ones.
func (c *conn) ask() {
	_ = c.raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		c.known.RTT = time.Duration(info.Rtt) * time.Microsecond
		c.known.Retransmits = info.Total_retrans
		if info.Bytes_acked > 1 {
			c.known.Acked = info.Bytes_acked - 1 // without the SYN
		}
		// An answer may be read before the write of its request has returned and was counted.
		c.known.Sent = max(c.known.Sent, c.known.Acked)
	})
}
