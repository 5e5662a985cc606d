package web

import (
	"context"
	"net"
	"sync"

	"golang.org/x/time/rate"
)

// Limits of the resources that connections use. A TLS connection takes about 30 KiB.
const (
	maxConnections = 128
	// maxKnown is how many connections may be protected from being closed for others.
	maxKnown = 32
	// Connection rate and burst of one address: a handshake takes 0.1 ms of CPU. kubelet opens a
	// connection for each of its probes.
	connectRate, connectBurst = 100, 200
)

// boundedListener bounds the connections of a listener. If there are too many, it closes the
// oldest one of the address with the most connections. A connection on which a token was accepted
// stays open: behind a masquerading node, a metrics reader may share its address with others.
type boundedListener struct {
	net.Listener
	rates  *Limiters
	closed func(reason string)

	mu    sync.Mutex
	open  []*boundedConn // oldest first
	known int
}

// Bound bounds the connections of a listener. It calls closed with the reason for each
// connection it closes: [ClosedRate] or [ClosedFull]. The server must use [ConnContext] for
// [KeepConn] to work.
func Bound(l net.Listener, closed func(reason string)) (net.Listener, error) {
	rates, err := NewLimiters(maxAddresses, rate.Limit(connectRate), connectBurst)
	return &boundedListener{Listener: l, rates: rates, closed: closed}, err
}

// boundedConn is an accepted connection.
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

// admit adds a connection and returns the one to close instead, or nil.
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

// keep protects a connection from being closed for others, if fewer than maxKnown are protected.
func (c *boundedConn) keep() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if !c.known && !c.left && c.listener.known < maxKnown {
		c.known = true
		c.listener.known++
	}
}

// connKey is the context key of a request's connection.
type connKey struct{}

// ConnContext is a ConnContext function for [http.Server] that stores the connection for
// [KeepConn].
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
