package web

import (
	"context"
	"net"
	"sync"

	"golang.org/x/time/rate"
)

// Bounds of what connections may take of this process. A connection with TLS is some 30 KiB.
const (
	maxConnections = 128
	// maxKnown connections are never closed for others.
	maxKnown = 32
	// One address may connect so often: a handshake is 0.1 ms of a CPU. kubelet makes a
	// connection for each of its probes.
	connectRate, connectBurst = 100, 200
)

// boundedListener bounds the connections that a listener accepts, whoever opens them. Where there
// are too many, it closes the oldest of the address that has most of them. A connection on which a
// token was accepted stays: behind a node's masquerading, whoever reads metrics may share its
// address with others.
type boundedListener struct {
	net.Listener
	rates  *Limiters
	closed func(reason string)

	mu    sync.Mutex
	open  []*boundedConn // oldest first
	known int
}

// Bound bounds the connections of a listener. It calls closed with the reason for each that it
// closes: [ClosedRate] or [ClosedFull]. The server needs [ConnContext] for [KeepConn].
func Bound(l net.Listener, closed func(reason string)) (net.Listener, error) {
	rates, err := NewLimiters(maxAddresses, rate.Limit(connectRate), connectBurst)
	return &boundedListener{Listener: l, rates: rates, closed: closed}, err
}

// boundedConn is a connection that was accepted.
type boundedConn struct {
	net.Conn
	listener *boundedListener
	address  string
	known    bool // guarded by the listener's mu
	left     bool // likewise
}

// Accept implements [net.Listener].
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := hostOf(conn.RemoteAddr().String())
		if !l.rates.Of(address).Allow() {
			l.closed(ClosedRate)
			_ = conn.Close()
			continue
		}
		c := &boundedConn{Conn: conn, listener: l, address: address}
		if victim := l.admit(c); victim != nil {
			l.closed(ClosedFull)
			_ = victim.Close()
		}
		return c, nil
	}
}

// admit adds a connection and returns the one to close for it; nil: none.
func (l *boundedListener) admit(c *boundedConn) (victim *boundedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, c)
	if len(l.open) <= maxConnections {
		return nil
	}
	of := make(map[string]int)
	most := 0
	for _, o := range l.open {
		if !o.known {
			of[o.address]++
			most = max(most, of[o.address])
		}
	}
	for _, o := range l.open {
		if !o.known && of[o.address] == most {
			return o
		}
	}
	return nil
}

// Close implements [net.Conn].
func (c *boundedConn) Close() error {
	c.listener.leave(c)
	return c.Conn.Close()
}

func (l *boundedListener) leave(c *boundedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.left {
		return
	}
	c.left = true
	if c.known {
		l.known--
	}
	for i, o := range l.open {
		if o == c {
			l.open = append(l.open[:i], l.open[i+1:]...)
			l.open[:len(l.open)+1][len(l.open)] = nil // for the garbage collector
			return
		}
	}
}

// keep protects a connection from being closed for others, for at most maxKnown at a time.
func (c *boundedConn) keep() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if !c.known && !c.left && c.listener.known < maxKnown {
		c.known = true
		c.listener.known++
	}
}

// connKey is of the connection that a request comes on.
type connKey struct{}

// ConnContext is for [http.Server].
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if wrapped, ok := c.(interface{ NetConn() net.Conn }); ok { // with TLS
		c = wrapped.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// KeepConn protects the connection of a request from being closed for others.
func KeepConn(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*boundedConn); ok {
		c.keep()
	}
}
