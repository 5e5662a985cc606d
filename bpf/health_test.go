package bpf

import (
	"sync"
	"testing"
)

// TestHarmlessSkips: a skipped run loses a record only if no other program reports the same.
func TestHarmlessSkips(t *testing.T) {
	l, err := Open(sockfail(), testKernel(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.AttachAll()
	skips, err := l.Skips()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range skips {
		seen[s.Program] = true
		want := map[string]bool{
			SockfailProgStateRaw: !l.serves(hookState, SockfailProgStateRaw),
			SockfailProgDropRaw:  true, SockfailProgIcmpRaw: true, SockfailProgResendRaw: true,
			SockfailProgErrorRaw: true, SockfailProgErrorFentry: true, SockfailProgErrorKp: true,
			SockfailProgReturn4Fexit: true, SockfailProgReturn4Kp: true, SockfailProgReturn6Fexit: true, SockfailProgReturn6Kp: true,
		}[s.Program]
		if s.Harmless != want {
			t.Errorf("%s: harmless %v, want %v", s.Program, s.Harmless, want)
		}
	}
	for _, p := range []string{SockfailProgStateRaw, SockfailProgResetRaw, canaryProgram} {
		if !seen[p] {
			t.Errorf("%s is not counted: %+v", p, skips)
		}
	}
}

// TestSkipsWhileHooksAreAttached: metrics are read by another goroutine than the stem's, at any
// time. The race detector checks this.
func TestSkipsWhileHooksAreAttached(t *testing.T) {
	l := openStem(t, sockfail(), testKernel(t), nil)
	attached := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			if _, err := l.Skips(); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-attached:
				return
			default:
			}
		}
	})
	l.AttachAll()
	close(attached)
	reading.Wait()
}

// TestSkipsOfProgramsThatAreGone: the reported skips of a program that is loaded again later must
// not hide new ones. The kernel can't be made to skip runs, so the test writes the count itself.
func TestSkipsOfProgramsThatAreGone(t *testing.T) {
	k := testKernel(t)
	pins, reopen := testPins(t)
	first := openStem(t, diskio(), k, pins)
	if err := first.Attach(HookDiskIOBio); err != nil {
		t.Fatal(err)
	}
	if err := first.ReportedLosses(Losses{Skipped: 1000}); err != nil {
		t.Fatal(err)
	}
	if err := first.Detach(HookDiskIOBio); err != nil {
		t.Fatal(err)
	}
	first.Close()
	pins.Close()

	second := openStem(t, diskio(), k, reopen())
	skipped, err := second.Skipped()
	if err != nil {
		t.Fatal(err)
	}
	if reported, err := lostElement(second.maps[mapLost], reportedSkipped); err != nil || reported > skipped {
		t.Errorf("%d of %d skipped runs are reported already: %v", reported, skipped, err)
	}
}

// TestReportedSkipsAreNotReportedAgain: while its hook is detached a program may count as harmless.
// If another loss is reported meanwhile, the program's reported skips must not be reported again
// once the hook is attached. The kernel can't be made to skip runs, so the test writes the count
// itself.
func TestReportedSkipsAreNotReportedAgain(t *testing.T) {
	l := openStem(t, oomkill(), testKernel(t), nil)
	const before = 1000
	if err := noteLost(l.maps[mapLost], reportedSkipped, before); err != nil {
		t.Fatal(err)
	}
	overflow(t, l)
	lost := losses(t, l)
	if lost.RingFull == 0 || lost.Skipped != 0 {
		t.Fatalf("%+v", lost)
	}
	if err := l.ReportedLosses(lost); err != nil {
		t.Fatal(err)
	}
	if reported, err := lostElement(l.maps[mapLost], reportedSkipped); err != nil || reported != before {
		t.Errorf("%d skipped runs are reported, want %d: %v", reported, before, err)
	}
	if lost := losses(t, l); lost.RingFull != 0 {
		t.Errorf("%+v is reported again", lost)
	}
}
