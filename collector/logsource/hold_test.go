package logsource

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

func TestKernelLinesAreHeldBack(t *testing.T) {
	rec := newRecorder()
	l := open(t, patterns(t, "bin"), Options{StateDir: t.TempDir()}, Config{Name: "k", Plugin: KMsg}).logs[0]
	l.emit = rec.emit
	wantReported := func(when string, want ...string) {
		t.Helper()
		if got := rec.lines(); !slices.Equal(got, want) {
			t.Errorf("%s: reported %q, want %q", when, got, want)
		}
	}
	handle := func(text, origin string, age time.Duration) {
		t.Helper()
		item := line(text)
		item.Line.Origin, item.Line.Time, item.Line.BootTime = origin, time.Now().Add(-age), time.Hour
		if err := l.handle(item); err != nil {
			t.Error(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		handle("bin 1", "user", 0)
		wantReported("not of the kernel", "bin 1")
		handle("bin 2", event.OriginKernel, 2*holdFor)
		wantReported("old", "bin 1", "bin 2")
		handle("bin 3", event.OriginKernel, 0)
		handle("bin 4", "user", 0)
		handle("bin 5", event.OriginKernel, -time.Hour)
		time.Sleep(holdFor - time.Millisecond)
		wantReported("a moment before", "bin 1", "bin 2")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		wantReported("in order, whatever the clock says", "bin 1", "bin 2", "bin 3", "bin 4", "bin 5")

		handle("bin 6", event.OriginKernel, 0)
		l.save()
		wantReported("before a position behind it is saved", "bin 1", "bin 2", "bin 3", "bin 4", "bin 5", "bin 6")
	})
}
