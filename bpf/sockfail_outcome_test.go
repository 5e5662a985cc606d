package bpf

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

func outcomesOf(t *testing.T, l *Loaded) *SockOutcomes {
	t.Helper()
	o, err := l.SockOutcomes()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

// wantOutcome waits until the ended connections are counted: the server may close its end a moment
// after the prober.
func wantOutcome(t *testing.T, o *SockOutcomes, id uint32, succeeded, failed uint64) SockOutcome {
	t.Helper()
	var got SockOutcome
	testenv.UntilShown(t, fmt.Sprintf("%d succeeded and %d failed", succeeded, failed), 3*time.Second, func() (bool, string) {
		var watched bool
		var err error
		got, watched, err = o.Of(id)
		if err != nil || !watched {
			t.Fatal(watched, err)
		}
		if got.Succeeded > succeeded || got.Failed > failed {
			t.Fatalf("counted %+v, want %d and %d", got, succeeded, failed)
		}
		return got.Succeeded == succeeded && got.Failed == failed, fmt.Sprintf("%+v", got)
	})
	return got
}

// Each connection is counted once, for its own target, while that is watched.
func TestSockOutcomes(t *testing.T) {
	k := testKernel(t)
	n := newTestNet(t)
	pins, reopen := testPins(t)
	l := openStem(t, sockfail(), k, pins)
	at := n.listen(t, "127.0.0.1:0", func(net.Conn) {})
	dead := netip.MustParseAddrPort("127.0.0.1:9")
	alive, none := NewSockTargetKey(n.inode, at.Addr(), at.Port()), NewSockTargetKey(n.inode, dead.Addr(), dead.Port())
	rewatch(t, l, alive, none)
	o := outcomesOf(t, l)
	if got := wantOutcome(t, o, alive.ID(), 0, 0); got != (SockOutcome{}) {
		t.Errorf("before any connection: %+v", got)
	}
	began := bootNow()
	for range 23 {
		n.dial(t, at, nil)
		n.dial(t, dead, syscall.ECONNREFUSED)
	}
	got := wantOutcome(t, o, alive.ID(), 23, 0)
	if got.StartNS < began || got.StartNS > bootNow() || got.TookNS == 0 || got.TookNS > uint64(time.Minute) || got.RTTMicros == 0 {
		t.Errorf("the latest success: %+v", got)
	}
	if got := wantOutcome(t, o, none.ID(), 0, 23); got.StartNS < began || got.RTTMicros != 0 {
		t.Errorf("the latest failure: %+v", got)
	}

	// Targets that stay watched keep their counts, also in another run of the agent.
	rewatch(t, l, alive)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	pins.Close()
	n.dial(t, at, nil)
	l = openStem(t, sockfail(), k, reopen())
	rewatch(t, l, alive)
	wantOutcome(t, outcomesOf(t, l), alive.ID(), 24, 0)
	if _, watched, err := outcomesOf(t, l).Of(none.ID()); watched || err != nil {
		t.Errorf("not watched any more: %v (%v)", watched, err)
	}

	// An ID that belonged to another target starts at 0.
	if err := l.WatchTargets(SockTargets{Keys: map[SockTargetKey]SockTarget{none: {ID: alive.ID()}}}); err != nil {
		t.Fatal(err)
	}
	n.dial(t, at, nil)
	n.dial(t, dead, syscall.ECONNREFUSED)
	wantOutcome(t, outcomesOf(t, l), alive.ID(), 0, 1)
	rewatch(t, l)
}

// Targets that differ only in the network namespace share their key for packets. Watching another
// target must not reset their counts.
func TestSockOutcomesOfTwoNamespaces(t *testing.T) {
	a, b := newTestNet(t), newTestNet(t)
	dead, other := netip.MustParseAddrPort("127.0.0.1:9"), netip.MustParseAddrPort("127.0.0.1:10")
	inA, inB := NewSockTargetKey(a.inode, dead.Addr(), dead.Port()), NewSockTargetKey(b.inode, dead.Addr(), dead.Port())
	l := watch(t, testKernel(t), inA, inB)
	a.dial(t, dead, syscall.ECONNREFUSED)
	b.dial(t, dead, syscall.ECONNREFUSED)
	o := outcomesOf(t, l)
	check := func() {
		t.Helper()
		for _, key := range []SockTargetKey{inA, inB} {
			wantOutcome(t, o, key.ID(), 0, 1)
		}
	}
	check()
	for range 20 {
		rewatch(t, l, inA, inB, NewSockTargetKey(a.inode, other.Addr(), other.Port()))
		check()
		rewatch(t, l, inA, inB)
		check()
	}
}

// slowConversation describes a connection to a target whose answers are slow after slowLimit, and
// the expected record.
type slowConversation struct {
	name   string
	server func(net.Conn)
	client func(net.Conn)
	others bool // the target's limit applies only to other processes
	flags  uint8
	bytes  uint64
	none   bool // nothing is reported
}

const slowLimit = 200 * time.Millisecond

// waitFor makes the prober read for this time.
func waitFor(times time.Duration) func(net.Conn) {
	return func(c net.Conn) {
		io.WriteString(c, "ping")
		c.SetReadDeadline(time.Now().Add(times))
		io.ReadAll(c)
	}
}

func begin(c net.Conn) {
	read(c)
	io.WriteString(c, "begun")
	io.ReadAll(c)
}

func slowConversations() []slowConversation {
	const over = slowLimit * 5 / 4
	return []slowConversation{
		{name: "begun and not ended", server: begin, client: waitFor(over), flags: SockEstablished | SockSlow, bytes: 5},
		{name: "aborted", server: begin, client: func(c net.Conn) {
			waitFor(over)(c)
			c.(*net.TCPConn).SetLinger(0)
		}, flags: SockEstablished | SockSlow, bytes: 5},
		{name: "closed early", server: begin, client: waitFor(slowLimit / 4), none: true},
		{name: "ended by the peer", server: func(c net.Conn) {
			read(c)
			io.WriteString(c, "begun")
			c.SetReadDeadline(time.Now().Add(over))
			read(c)
		}, client: waitFor(10 * slowLimit), none: true},
		{name: "of another process", server: begin, client: waitFor(over), others: true, none: true},
		{name: "half closed", server: begin, client: func(c net.Conn) {
			io.WriteString(c, "ping")
			c.(*net.TCPConn).CloseWrite()
			waitFor(over)(c)
		}, none: true},
		{name: "no byte", server: func(c net.Conn) { io.ReadAll(c) }, client: waitFor(over), flags: SockEstablished},
	}
}

func TestSockFailSlow(t *testing.T) {
	testenv.OnlyInTestAll(t)
	k := testKernel(t)
	n := newTestNet(t)
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range slowConversations() {
		t.Run(c.name, func(t *testing.T) {
			at := n.listen(t, fmt.Sprintf("127.0.0.1:%d", 4711+i), func(conn net.Conn) {
				conn.SetDeadline(time.Now().Add(3 * time.Second))
				c.server(conn)
			})
			l := openStem(t, sockfail(), k, nil)
			key := NewSockTargetKey(n.inode, at.Addr(), at.Port())
			want := targetsOf(key)
			target := SockTarget{ID: key.ID(), SlowMS: uint32(slowLimit.Milliseconds()), Openers: 1 << 1}
			want.Openers = []string{"kubelet", strings.TrimSpace(string(comm))}
			if c.others {
				target.Openers = 1 << 0
			}
			want.Keys[key] = target
			if err := l.WatchTargets(want); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { rewatch(t, l) })
			n.in(t, func() error {
				conn, err := net.Dial("tcp", at.String())
				if err != nil {
					return err
				}
				defer conn.Close()
				c.client(conn)
				return nil
			})
			if c.none {
				wantOutcome(t, outcomesOf(t, l), key.ID(), 1, 0)
				if got := drainSockets(t, l); len(got) != 0 {
					t.Fatalf("got %+v", got)
				}
				return
			}
			wantOutcome(t, outcomesOf(t, l), key.ID(), 0, 1)
			got := waitSockets(t, l, 1)
			r := got[0]
			if len(got) != 1 || r.H.Kind != KindSockFail || r.Flags != c.flags || r.BytesReceived != c.bytes || r.RTTMicros == 0 {
				t.Errorf("got %+v", got)
			}
			// The limit is in every record of a connection that has one.
			if r.LimitMS != target.SlowMS || time.Duration(r.H.BootNS-r.StartNS) < slowLimit {
				t.Errorf("limit %d, after %s", r.LimitMS, time.Duration(r.H.BootNS-r.StartNS))
			}
		})
	}
}

// A thread with a name of its own is reported under the name of its process.
func TestSockFailOpenerIsTheProcess(t *testing.T) {
	k := testKernel(t)
	n := newTestNet(t)
	to := netip.MustParseAddrPort("127.0.0.1:9")
	l := watch(t, k, NewSockTargetKey(n.inode, to.Addr(), to.Port()))
	n.in(t, func() error { // a thread of its own, which ends with fn
		if err := os.WriteFile("/proc/thread-self/comm", []byte("renamed"), 0); err != nil {
			return err
		}
		if _, err := net.Dial("tcp", to.String()); err == nil {
			return fmt.Errorf("connected to %s", to)
		}
		return nil
	})
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	r := waitSockets(t, l, 1)[0]
	if got := string(CString(r.Opener.Comm[:])); got != strings.TrimSpace(string(comm)) || r.Opener.PID == r.Opener.TGID {
		t.Errorf("opener %q, thread %d of %d, want %q", got, r.Opener.PID, r.Opener.TGID, comm)
	}
}
