package bpf

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// another returns the stem as if built from other code, with the same map layout.
func another(s Stem) Stem {
	s.object = append([]byte("another"), s.object...)
	return s
}

// Connections that fail before, during or after an upgrade have one record each, also those that
// began under the old build's programs, and before the new agent knows any target.
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

// Unreported losses of a build are reported once, even two builds later.
func TestUpgradeKeepsLosses(t *testing.T) {
	k := testKernel(t)
	pins, reopen := testPins(t)
	l := openStem(t, another(another(oomkill())), k, pins)
	overflow(t, l)
	if err := l.ReportedLosses(losses(t, l)); err != nil {
		t.Fatal(err)
	}
	overflow(t, l) // the ring is still full
	// The kernel can't be made to skip runs: pretend that seven are unreported.
	if err := noteLost(l.maps[mapLost], reportedSkipped, ^uint64(0)-6); err != nil {
		t.Fatal(err)
	}
	for _, s := range []Stem{another(oomkill()), oomkill()} {
		l.Close()
		pins.Close()
		pins = reopen()
		l = openStem(t, s, k, pins)
		drainNonces(t, l)
	}
	lost := losses(t, l)
	if lost.RingFull != 25_000 || lost.Skipped != 7 || lost.Unread != nil {
		t.Errorf("after two upgrades %+v is to be reported, want 25000 and 7", lost)
	}
	if err := l.ReportedLosses(lost); err != nil {
		t.Fatal(err)
	}
	if lost := losses(t, l); lost.RingFull != 0 || lost.Skipped != 0 {
		t.Errorf("%+v after it was reported", lost)
	}
}

// Disk errors that a build counted but did not report are reported once, even two builds later.
func TestUpgradeKeepsCountedDiskErrors(t *testing.T) {
	k := testKernel(t)
	pins, reopen := testPins(t)
	l := openStem(t, another(another(diskio())), k, pins)
	disk := fullDisk(t)
	f, b := disk.open(t), directBuffer(t)
	for i := range 200 {
		if _, err := f.WriteAt(b, int64(i)*diskBlock); err == nil {
			t.Fatal("write succeeded")
		}
	}
	counted := func() (of DiskErrors) {
		t.Helper()
		all, err := l.UnrecordedDiskErrors(0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if e.Kind.Dev == disk.dev {
				of = e
			}
		}
		return of
	}
	want := counted().N
	if want == 0 {
		t.Fatal("none was counted")
	}
	for _, s := range []Stem{another(diskio()), diskio()} {
		l.Close()
		pins.Close()
		pins = reopen()
		l = openStem(t, s, k, pins)
		drainDiskIO(t, l, disk.dev)
	}
	of := counted()
	if of.N != want {
		t.Errorf("%d counted after two upgrades, want %d", of.N, want)
	}
	// The storm continues in the new build.
	countsOnlyNewErrors(t, l, of, counted, func() error { _, err := f.WriteAt(b, 0); return err })
}

// Records and counts of a build whose maps differ can't be read, which is a loss too.
func TestUpgradeReportsWhatItCannotRead(t *testing.T) {
	k := testKernel(t)
	for _, name := range []string{mapEvents, mapStorms} {
		t.Run(name, func(t *testing.T) {
			pins, reopen := testPins(t)
			first := openStem(t, another(diskio()), k, pins)
			if err := os.Remove(mapPin(first.dir, name)); err != nil {
				t.Fatal(err)
			}
			m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if err := m.Pin(mapPin(first.dir, name)); err != nil {
				t.Fatal(err)
			}
			first.Close()
			pins.Close()

			second := openStem(t, diskio(), k, reopen())
			lost := losses(t, second)
			if lost.Unread == nil || !strings.Contains(lost.Unread.Error(), "map "+name+" of another build: ") {
				t.Fatalf("%+v", lost)
			}
			if err := second.ReportedLosses(lost); err != nil {
				t.Fatal(err)
			}
			if lost := losses(t, second); lost.Unread != nil {
				t.Errorf("%+v after it was reported", lost)
			}
		})
	}
}

// A build that returns after a failed upgrade finds its own unread records, those of the build in
// between, and new ones. Each is read once, however far the upgrades got.
func TestRollbackKeepsUnreadRecords(t *testing.T) {
	k := testKernel(t)
	for _, s := range []Stem{oomkill(), diskio(), hungtask()} {
		for name, builds := range map[string][]Stem{
			"rollback":                 {another(s), s, another(s)},
			"two upgrades and a third": {another(s), s, another(s), s, another(another(s))},
		} {
			t.Run(s.Name+", "+name, func(t *testing.T) {
				pins, reopen := testPins(t)
				var l *Loaded
				want := []uint64{}
				for i, build := range builds {
					if l != nil {
						l.Close() // killed before it has read anything
						pins.Close()
						pins = reopen()
					}
					l = openStem(t, build, k, pins)
					nonce := uint64(i)
					want = append(want, nonce)
					if err := l.RunCanary(nonce); err != nil {
						t.Fatal(err)
					}
				}
				got := drainNonces(t, l)
				slices.Sort(got) // builds that share their state have no order of rings
				if !slices.Equal(got, want) {
					t.Errorf("got canaries %v, want %v", got, want)
				}
				if ids, err := pins.versions(s.Name); err != nil || len(ids) != 1 {
					t.Errorf("pinned builds %v (%v), want the last alone", ids, err)
				}
			})
		}
	}
}

// A record in both builds' rings is read once: before the cut from the older ring, after it from
// the newer.
func TestRollbackCutsRecordsOfBoth(t *testing.T) {
	k := testKernel(t)
	pins, reopen := testPins(t)
	old := openStem(t, another(oomkill()), k, pins)
	next := openStem(t, oomkill(), k, pins)
	// As if a program had recorded it: the kernel detaches a program only some milliseconds after
	// its pin is removed.
	for _, l := range []*Loaded{old, next} {
		if err := l.RunCanary(1); err != nil {
			t.Fatal(err)
		}
	}
	old.Close()
	next.Close()
	pins.Close()
	l := openStem(t, another(oomkill()), k, reopen())
	if got := drainNonces(t, l); len(got) != 1 {
		t.Errorf("got %d records of one that both builds have, want 1", len(got))
	}
}

// A build that could not take over records the same as the build that is still attached: the next
// one reads the latter's records only.
func TestBuildThatNeverTookOver(t *testing.T) {
	k := testKernel(t)
	fails := func(t *testing.T, s Stem, pins *PinRoot) {
		t.Helper()
		s.hooks = slices.Clone(s.hooks)
		s.hooks = append(s.hooks, hook{name: "impossible", variants: []variant{
			{program: s.hooks[0].variants[0].program, attach: func(*ebpf.Program) (link.Link, error) { return nil, os.ErrInvalid }},
		}})
		l, err := Open(s, k, pins)
		if err == nil {
			t.Error("opened without a required hook")
		}
		if err := l.RunCanary(1); err != nil { // as if its other hooks recorded it
			t.Error(err)
		}
		l.Close()
	}
	killed := func(t *testing.T, s Stem, pins *PinRoot) {
		t.Helper()
		if err := os.Mkdir(pins.dir(s.Name, s.id("own")), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		upgrades []func(*testing.T, Stem, *PinRoot)
		next     Stem
	}{
		"it failed, rollback":                  {[]func(*testing.T, Stem, *PinRoot){fails}, another(oomkill())},
		"it failed twice, rollback":            {[]func(*testing.T, Stem, *PinRoot){fails, fails}, another(oomkill())},
		"it failed, the next upgrade":          {[]func(*testing.T, Stem, *PinRoot){fails}, another(another(oomkill()))},
		"it failed and then works":             {[]func(*testing.T, Stem, *PinRoot){fails}, oomkill()},
		"it was killed at its start, rollback": {[]func(*testing.T, Stem, *PinRoot){killed}, another(oomkill())},
	} {
		t.Run(name, func(t *testing.T) {
			pins, reopen := testPins(t)
			old := openStem(t, another(oomkill()), k, pins)
			if err := old.RunCanary(0); err != nil {
				t.Fatal(err)
			}
			for _, upgrade := range c.upgrades {
				upgrade(t, oomkill(), pins)
			}
			if err := old.RunCanary(1); err != nil {
				t.Fatal(err)
			}
			old.Close()
			pins.Close()
			pins = reopen()
			l := openStem(t, c.next, k, pins)
			if err := l.RunCanary(2); err != nil {
				t.Fatal(err)
			}
			if got := drainNonces(t, l); !slices.Equal(got, []uint64{0, 1, 2}) {
				t.Errorf("got canaries %v, want [0 1 2]", got)
			}
			if ids, err := pins.versions(l.Stem); err != nil || len(ids) != 1 {
				t.Errorf("pinned builds %v (%v), want the last alone", ids, err)
			}
			// It is the only build now, so the next one reads all of its records.
			if err := l.RunCanary(3); err != nil {
				t.Fatal(err)
			}
			l.Close()
			pins.Close()
			if got := drainNonces(t, openStem(t, another(another(another(oomkill()))), k, reopen())); !slices.Equal(got, []uint64{3}) {
				t.Errorf("after the next upgrade got canaries %v, want [3]", got)
			}
		})
	}
}
