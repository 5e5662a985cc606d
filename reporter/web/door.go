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

// door bounds the connections of a listener, whoever opens them. Where there are too many, the
// oldest of the address that has most is closed: whoever holds many makes room for the others.
// One on which a token was accepted stays, since who reads metrics may share its address with
// others, behind a node's masquerading.
type door struct {
	net.Listener
	rates  *Limiters
	counts *Counts

	mu    sync.Mutex
	open  []*guest // oldest first
	known int
}

func newDoor(l net.Listener, counts *Counts) (*door, error) {
	rates, err := NewLimiters(maxAddresses, rate.Limit(connectRate), connectBurst)
	return &door{Listener: l, rates: rates, counts: counts}, err
}

// guest is a connection that is let in.
type guest struct {
	net.Conn
	door    *door
	address string
	known   bool // guarded by the door's mu
	left    bool // likewise
}

// Accept implements [net.Listener].
func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := hostOf(c.RemoteAddr().String())
		if !d.rates.Of(address).Allow() {
			d.counts.closed(closedRate)
			_ = c.Close()
			continue
		}
		g := &guest{Conn: c, door: d, address: address}
		if victim := d.admit(g); victim != nil {
			d.counts.closed(closedFull)
			_ = victim.Close()
		}
		return g, nil
	}
}

// admit lets a connection in, and returns the one that has to go for it; nil: none.
func (d *door) admit(g *guest) (victim *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = append(d.open, g)
	if len(d.open) <= maxConnections {
		return nil
	}
	of := make(map[string]int)
	most := 0
	for _, o := range d.open {
		if !o.known {
			of[o.address]++
			most = max(most, of[o.address])
		}
	}
	for _, o := range d.open {
		if !o.known && of[o.address] == most {
			return o
		}
	}
	return nil
}

// Close implements [net.Conn].
func (g *guest) Close() error {
	g.door.leave(g)
	return g.Conn.Close()
}

func (d *door) leave(g *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.left {
		return
	}
	g.left = true
	if g.known {
		d.known--
	}
	for i, o := range d.open {
		if o == g {
			d.open = append(d.open[:i], d.open[i+1:]...)
			d.open[:len(d.open)+1][len(d.open)] = nil // for the garbage collector
			return
		}
	}
}

// keep has a connection stay, while there are not too many such.
func (g *guest) keep() {
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	if !g.known && !g.left && g.door.known < maxKnown {
		g.known = true
		g.door.known++
	}
}

// guestKey is of the guest that a request comes on.
type guestKey struct{}

// withGuest is for [http.Server].
func withGuest(ctx context.Context, c net.Conn) context.Context {
	if wrapped, ok := c.(interface{ NetConn() net.Conn }); ok { // with TLS
		c = wrapped.NetConn()
	}
	return context.WithValue(ctx, guestKey{}, c)
}

// keepGuest has the connection of a request stay.
func keepGuest(ctx context.Context) {
	if g, ok := ctx.Value(guestKey{}).(*guest); ok {
		g.keep()
	}
}
