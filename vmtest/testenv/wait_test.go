package testenv

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// failing is a testing.TB that may fail.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failure returns the message with which a wait fails a test, and when; the message is "" if it
// does not fail.
func failure(t *testing.T, wait func(testing.TB)) (said string, took time.Duration) {
	t.Helper()
	f, start, ended := &failing{TB: t}, time.Now(), make(chan struct{})
	go func() {
		defer close(ended)
		wait(f)
	}()
	<-ended
	return f.said, time.Since(start)
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 3
		said, took := failure(t, func(tb testing.TB) {
			Until(tb, "the third look", time.Minute, func() bool { left--; return left == 0 })
		})
		if said != "" || left != 0 || took > time.Second {
			t.Errorf("failed with %q after %s, %d looks left", said, took, left)
		}
	})
}

func TestUntilLooksBeforeItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if said, _ := failure(t, func(tb testing.TB) { Until(tb, "now", 0, func() bool { return true }) }); said != "" {
			t.Error(said)
		}
		// A poll that takes longer than the whole time, and succeeds.
		if said, _ := failure(t, func(tb testing.TB) {
			Until(tb, "late", time.Second, func() bool { time.Sleep(time.Hour); return true })
		}); said != "" {
			t.Error(said)
		}
	})
}

func TestUntilFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const within = time.Minute
		said, took := failure(t, func(tb testing.TB) { Until(tb, "the end of days", within, func() bool { return false }) })
		if took < within || took > mostSlower*within+time.Second {
			t.Errorf("it failed after %s", took)
		}
		if want := fmt.Sprintf("waited %s for: the end of days", took.Round(time.Millisecond)); said != want {
			t.Errorf("it fails with %q, want %q", said, want)
		}
		looks := 0
		said, _ = failure(t, func(tb testing.TB) {
			UntilShown(tb, "nothing", within, func() (bool, string) { looks++; return false, fmt.Sprint("look ", looks) })
		})
		if want := fmt.Sprint("; last: look ", looks); !strings.HasSuffix(said, want) {
			t.Errorf("it fails with %q, want %q at its end", said, want)
		}
	})
}

// A condition that costs 50 ms uses at most half a CPU, and less the longer it takes.
func TestUntilLeavesTheCPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		said, took := failure(t, func(tb testing.TB) {
			Until(tb, "the twentieth look", 10*time.Second, func() bool {
				time.Sleep(50 * time.Millisecond)
				looks++
				return looks == 20
			})
		})
		if said != "" || took < (20+19)*50*time.Millisecond || took > 20*(50+200)*time.Millisecond {
			t.Errorf("%q after %s", said, took)
		}
	})
}

func TestWithinNeverShortens(t *testing.T) {
	for _, d := range []time.Duration{0, 1, time.Millisecond, 3 * time.Second, time.Hour} {
		if got := Within(d); got < d || got > mostSlower*d {
			t.Errorf("Within(%s) = %s", d, got)
		}
	}
	t.Logf("this CPU is slower by %.2f, a second is now %s", slowCPU(), Within(time.Second))
}

func TestBusy(t *testing.T) {
	for text, want := range map[string]float64{
		"0.09 2.32 4.53 1/159 7225\n":  1,
		"1.00 2.32 4.53 2/159 7225\n":  1,
		"0.50 0.10 0.01 9/159 7225\n":  4.5, // just started
		"8.00 9.10 9.01 1/159 7225\n":  4,   // for a while
		"0.00 0.00 0.00 70/159 7225\n": 35,
		"":                             1,
		"0.09 2.32 4.53 many\n":        1,
	} {
		if got := busy(text, 2); got != want {
			t.Errorf("busy(%q) = %v, want %v", text, got, want)
		}
	}
}

func BenchmarkWork(b *testing.B) {
	for b.Loop() {
		runtime.KeepAlive(work())
	}
}
