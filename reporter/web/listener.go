package web

import (
	"context"
	"net"
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
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

// maxAddresses is how many addresses are remembered; the least recently used are evicted first.
const maxAddresses = 4096

// Limiters holds rate limiters by name, for a bounded number of names.
type Limiters struct {
	each  rate.Limit
	burst int

	mu     sync.Mutex
	byName *simplelru.LRU[string, *rate.Limiter]
}

// NewLimiters returns Limiters for up to names names, which is more than 0.
func NewLimiters(names int, each rate.Limit, burst int) *Limiters {
	l, _ := simplelru.NewLRU[string, *rate.Limiter](names, nil) // fails only for 0 and less
	return &Limiters{each: each, burst: burst, byName: l}
}

// Of returns the rate limiter of a name.
func (l *Limiters) Of(name string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.byName.Get(name); ok {
		return r
	}
	r := rate.NewLimiter(l.each, l.burst)
	l.byName.Add(name, r)
	return r
}

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

// Bound bounds the connections of a listener. It calls closed with the reason for each connection it
// closes: [ClosedRate] or [ClosedFull]. The server must use [ConnContext] for [KeepConn] to work.
func Bound(l net.Listener, closed func(reason string)) net.Listener {
	return &boundedListener{Listener: l, rates: NewLimiters(maxAddresses, connectRate, connectBurst), closed: closed}
}

type boundedConn struct {
	net.Conn
	listener *boundedListener
	address  string
	known    bool // guarded by the listener's mu
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
	l := c.listener
	l.mu.Lock()
	if i := slices.Index(l.open, c); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
		if c.known {
			l.known--
		}
	}
	l.mu.Unlock()
	return c.Conn.Close()
}

type connKey struct{}

// ConnContext is a ConnContext function for [http.Server] that stores the connection for [KeepConn].
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if wrapped, ok := c.(interface{ NetConn() net.Conn }); ok { // with TLS
		c = wrapped.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// KeepConn protects the connection of a request from being closed for others, if fewer than maxKnown
// are protected.
func KeepConn(ctx context.Context) {
	c, ok := ctx.Value(connKey{}).(*boundedConn)
	if !ok {
		return
	}
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.known && l.known < maxKnown && slices.Contains(l.open, c) {
		c.known = true
		l.known++
	}
}
