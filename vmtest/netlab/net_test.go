package netlab

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestPair checks what other tests rely on: a healthy target works at once, and a fault affects
// only what it should, until it is mended.
func TestPair(t *testing.T) {
	prober, target := PairIn(t, 30)
	probe := func(to string) error { return prober.Probe(to, time.Second, "ping") }
	for _, at := range []string{"10.97.30.2:80", "[fd97:30::2]:80"} {
		if err := probe(at); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("nothing listens at %s: %v", at, err)
		}
		target.Serve(at, Echo)
		if err := probe(at); err != nil {
			t.Error(err)
		}
		mend := target.DropTCP()
		if err := prober.Probe(at, 100*time.Millisecond, ""); !timedOut(err) {
			t.Errorf("packets to %s are dropped: %v", at, err)
		}
		mend()
		if err := probe(at); err != nil {
			t.Errorf("mended: %v", err)
		}
	}
	for kind, want := range map[Kind]error{Blackhole: unix.EINVAL, Prohibit: unix.EACCES, Unreachable: unix.EHOSTUNREACH} {
		prober.AddRoute("10.97.30.2/32", kind)
		if err := probe("10.97.30.2:80"); !errors.Is(err, want) {
			t.Errorf("route of kind %d: %v", kind, err)
		}
		prober.RemoveRoute("10.97.30.2/32", kind)
	}
	prober.AddGhost("10.97.30.2")
	if err := prober.Probe("10.97.30.2:80", 100*time.Millisecond, ""); !timedOut(err) {
		t.Errorf("nobody has the link address: %v", err)
	}
	prober.ForgetNeighbour("10.97.30.2")
	if err := probe("10.97.30.2:80"); err != nil {
		t.Errorf("mended: %v", err)
	}
}

// TestListen checks that the queue holds one more than its length, and is accepted later.
func TestListen(t *testing.T) {
	n := New(t)
	l := n.Listen("[::]:80", 0)
	n.Dial("127.0.0.1:80")
	if err := n.Probe("127.0.0.1:80", 100*time.Millisecond, ""); !timedOut(err) {
		t.Errorf("the queue is full: %v", err)
	}
	n.Accept(l, Echo)
	if err := n.Probe("127.0.0.1:80", 3*time.Second, "ping"); err != nil {
		t.Error(err)
	}
}

// TestProbes checks that probes run concurrently and end independently.
func TestProbes(t *testing.T) {
	prober, target := PairIn(t, 30)
	target.Listen("10.97.30.2:80", 2) // takes three
	began := time.Now()
	errs, err := prober.Probes(5, "10.97.30.2:80", 200*time.Millisecond, "", false)
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for _, err := range errs {
		if err == nil {
			taken++
		} else if !timedOut(err) {
			t.Error(err)
		}
	}
	if took := time.Since(began); taken != 3 || took > 2*time.Second {
		t.Errorf("%d of them taken after %s: %v", taken, took, errs)
	}
}

// TestHolder checks that /proc shows the namespace while the test runs, and not afterwards.
func TestHolder(t *testing.T) {
	var inode uint32
	t.Run("during", func(t *testing.T) {
		if inode = New(t).Inode; !inProc(t, inode) {
			t.Error("no process is in the namespace")
		}
	})
	if inProc(t, inode) {
		t.Error("a process is in the namespace still")
	}
}

func inProc(t *testing.T, inode uint32) bool {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	want := "net:[" + strconv.FormatUint(uint64(inode), 10) + "]"
	for _, l := range links {
		if got, err := os.Readlink(l); err == nil && got == want {
			return true
		}
	}
	return false
}

func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
