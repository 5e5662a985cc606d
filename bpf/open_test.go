package bpf

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/rlimit"
)

// testKernel returns the kernel's BTF, or skips the test if this process can't load programs.
func testKernel(t *testing.T) *Kernel {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to load programs")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	k, err := OpenKernel()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// testPins returns a pin root of the test.
func testPins(t *testing.T) (root *PinRoot, reopen func() *PinRoot) {
	t.Helper()
	path := filepath.Join("/sys/fs/bpf", fmt.Sprintf("kernosis-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	open := func() *PinRoot {
		t.Helper()
		r, err := OpenPinRoot(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return r
	}
	root = open()
	t.Cleanup(func() {
		if err := root.Remove(); err != nil {
			t.Error(err)
		}
	})
	return root, open
}

func openStem(t *testing.T, s Stem, k *Kernel, pins *PinRoot) *Loaded {
	t.Helper()
	l, err := Open(s, k, pins)
	t.Cleanup(func() { l.Close() })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// drainNonces reads all canaries and returns their nonces.
func drainNonces(t *testing.T, l *Loaded) []uint64 {
	t.Helper()
	var nonces []uint64
	if _, err := l.Drain(func(raw []byte) {
		h, err := ParseHeader(raw)
		if err != nil {
			t.Fatal(err)
		}
		if h.Kind != KindCanary {
			return // a real fault of this machine
		}
		c, err := View[Canary](raw)
		if err != nil {
			t.Fatal(err)
		}
		nonces = append(nonces, c.Nonce)
	}); err != nil {
		t.Fatal(err)
	}
	return nonces
}

func TestEveryStemAttaches(t *testing.T) {
	k := testKernel(t)
	for _, s := range Stems() {
		t.Run(s.Name, func(t *testing.T) {
			l := openStem(t, s, k, nil)
			for _, r := range l.Reports() {
				t.Logf("%s %s %s: %s", r.Hook, r.Program, r.State, r.Reason)
				if r.State == Failed {
					t.Errorf("%s of hook %s: could not tell: %s", r.Program, r.Hook, r.Reason)
				}
			}
			for nonce := range uint64(23) {
				if err := l.RunCanary(nonce); err != nil {
					t.Fatal(err)
				}
			}
			if got := drainNonces(t, l); len(got) != 23 || got[22] != 22 {
				t.Errorf("23 canaries sent, got %d", got)
			}
			if err := l.CheckLinks(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Variants that are unused here because a better one works must also load and attach, or be
// conclusively absent or forbidden.
func TestEveryVariantAlone(t *testing.T) {
	k := testKernel(t)
	for _, s := range Stems() {
		for _, h := range s.hooks {
			for _, v := range h.variants {
				t.Run(s.Name+"/"+v.program, func(t *testing.T) {
					alone := s
					h.variants, h.optional, h.onDemand = []variant{v}, true, false
					alone.hooks = []hook{h}
					l := openStem(t, alone, k, nil)
					r := l.Reports()[0]
					t.Logf("%s: %s", r.State, r.Reason)
					if r.State == Failed {
						t.Errorf("could not tell: %s", r.Reason)
					}
				})
			}
		}
	}
}

// After a kill the agent finds the records that were not committed, and those since.
func TestRestartAdoptsPins(t *testing.T) {
	k := testKernel(t)
	for _, s := range Stems() {
		t.Run(s.Name, func(t *testing.T) {
			pins, reopen := testPins(t)
			first := openStem(t, s, k, pins)
			for nonce := range uint64(3) {
				if err := first.RunCanary(nonce); err != nil {
					t.Fatal(err)
				}
			}
			// One record is handled and committed, one is being handled.
			first.Ring().Next()
			first.Ring().Commit()
			first.Ring().Next()
			first.Close()
			pins.Close()

			second := openStem(t, s, k, reopen())
			// A kprobe's link can be pinned from 5.15 on.
			unpinned := map[string]bool{}
			for _, r := range first.Reports() {
				unpinned[r.Program] = !r.Pinned && strings.HasSuffix(r.Program, "_kp")
			}
			for _, r := range second.Reports() {
				if r.State == Attached && !unpinned[r.Program] {
					t.Errorf("%s attached anew instead of adopted", r.Program)
				}
			}
			if err := second.RunCanary(3); err != nil {
				t.Fatal(err)
			}
			if got := drainNonces(t, second); fmt.Sprint(got) != "[1 2 3]" {
				t.Errorf("after the restart got canaries %v, want [1 2 3]", got)
			}
		})
	}
}

// Another build's records are read up to the cut, this build's from there on.
func TestUpgradeTakesOver(t *testing.T) {
	k := testKernel(t)
	for _, s := range Stems() {
		t.Run(s.Name, func(t *testing.T) {
			pins, reopen := testPins(t)
			older := s
			older.object = append([]byte("older"), s.object...)
			first := openStem(t, older, k, pins)
			if err := first.RunCanary(1); err != nil {
				t.Fatal(err)
			}
			first.Close()
			pins.Close()

			pins = reopen()
			second := openStem(t, s, k, pins)
			if err := second.RunCanary(2); err != nil {
				t.Fatal(err)
			}
			if got := drainNonces(t, second); fmt.Sprint(got) != "[1 2]" {
				t.Errorf("got canaries %v, want [1 2]", got)
			}
			if ids, err := pins.versions(s.Name); err != nil || len(ids) != 1 {
				t.Errorf("pinned builds %v (%v), want this one alone", ids, err)
			}
		})
	}
}

func TestRingFullIsCounted(t *testing.T) {
	k := testKernel(t)
	l := openStem(t, oomkill(), k, nil)
	const sent = 40_000 // 1 MiB holds 21,845 canaries of 48 bytes
	for nonce := range uint64(sent) {
		if err := l.RunCanary(nonce); err != nil {
			t.Fatal(err)
		}
	}
	lost, err := l.RingFull()
	if err != nil {
		t.Fatal(err)
	}
	got := len(drainNonces(t, l))
	if lost == 0 || uint64(got)+lost != sent {
		t.Errorf("read %d, lost %d, want the sum to be %d", got, lost, sent)
	}
}

// losses returns the unreported losses of a stem.
func losses(t *testing.T, l *Loaded) Losses {
	t.Helper()
	lost, err := l.Losses()
	if err != nil {
		t.Fatal(err)
	}
	return lost
}

// overflow runs 25,000 canaries, which exceed every ring.
func overflow(t *testing.T, l *Loaded) {
	t.Helper()
	for nonce := range uint64(25_000) {
		if err := l.RunCanary(nonce); err != nil {
			t.Fatal(err)
		}
	}
}

// Losses are reported once, also by the next agent, whether the previous one reported them or not.
func TestLossesAreReportedOnceAcrossRestarts(t *testing.T) {
	k := testKernel(t)
	pins, reopen := testPins(t)
	l := openStem(t, oomkill(), k, pins)
	overflow(t, l)
	first := losses(t, l)
	if first.RingFull == 0 {
		t.Fatal("nothing was lost")
	}
	if err := l.ReportedLosses(first); err != nil {
		t.Fatal(err)
	}
	if again := losses(t, l); again.RingFull != 0 {
		t.Errorf("%d reported a second time", again.RingFull)
	}
	overflow(t, l) // the ring is still full: each one is lost, and then the agent dies
	l.Close()
	pins.Close()

	l = openStem(t, oomkill(), k, reopen())
	if lost := losses(t, l); lost.RingFull != 25_000 {
		t.Errorf("after the restart %d are to be reported, want the 25000 since", lost.RingFull)
	}
}

func TestPinRootIsExclusive(t *testing.T) {
	testKernel(t)
	pins, _ := testPins(t)
	if _, err := OpenPinRoot(pins.path); err == nil {
		t.Fatal("a second agent got the same pin root")
	}
}
