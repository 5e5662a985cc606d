package bpf

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
)

// another returns the stem as another build of the same layout.
func another(s Stem) Stem {
	s.object = append([]byte("another"), s.object...)
	return s
}

// Connections that fail before, during and after an upgrade have one record each, also
// those that began under the old build's programs, and before the new agent knows any
// target.
func TestUpgradeLosesNoConnection(t *testing.T) {
	k := testKernel(t)
	n := newTestNet(t)
	hold := make(chan struct{})
	at := n.listen(t, "127.0.0.1:0", func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		<-hold
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	closed := netip.MustParseAddrPort("127.0.0.1:9")
	keys := []SockTargetKey{NewSockTargetKey(n.inode, at.Addr(), at.Port()), NewSockTargetKey(n.inode, closed.Addr(), closed.Port())}

	pins, reopen := testPins(t)
	first := openStem(t, another(sockfail()), k, pins)
	rewatch(t, first, keys...)
	n.dial(t, closed, syscall.ECONNREFUSED)
	var open net.Conn
	n.in(t, func() (err error) {
		if open, err = net.Dial("tcp", at.String()); err == nil {
			_, err = open.Write([]byte("x"))
		}
		return err
	})
	defer open.Close()
	first.Close() // killed
	pins.Close()
	n.dial(t, closed, syscall.ECONNREFUSED)

	second := openStem(t, sockfail(), k, reopen())
	t.Cleanup(func() { rewatch(t, second) })
	close(hold)
	if _, err := open.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("the connection ended with %v", err)
	}
	n.dial(t, closed, syscall.ECONNREFUSED)
	failed := map[uint16]int{}
	count := func() {
		t.Helper()
		if _, err := second.Drain(func(raw []byte) {
			if r, err := View[SockFail](raw); err == nil && r.H.Kind == KindSockFail {
				failed[r.DstPort]++
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	count()
	if failed[closed.Port()] != 3 || failed[at.Port()] != 1 {
		t.Errorf("records by port: %v, want 3 of %d, 1 of %d", failed, closed.Port(), at.Port())
	}
	rewatch(t, second, keys...)
	n.dial(t, closed, syscall.ECONNREFUSED)
	count()
	if failed[closed.Port()] != 4 || failed[at.Port()] != 1 {
		t.Errorf("records by port: %v, want 4 of %d, 1 of %d", failed, closed.Port(), at.Port())
	}
	out, err := second.SockOutcomes()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if o, watched, err := out.Of(keys[1].ID()); err != nil || !watched || o.Failed != 4 {
		t.Errorf("outcomes %+v (%v, %v), want 4 failed in all", o, watched, err)
	}
}
