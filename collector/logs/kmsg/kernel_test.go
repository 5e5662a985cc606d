package kmsg

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// rawRing returns the current contents of the kernel's ring, using only read(2).
func rawRing(t *testing.T) [][]byte {
	t.Helper()
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("the kernel's log can't be read here: %v", err)
	}
	defer unix.Close(fd)
	var all [][]byte
	buf := make([]byte, 64<<10)
	for {
		switch n, err := unix.Read(fd, buf); {
		case errors.Is(err, unix.EAGAIN):
			return all
		case errors.Is(err, unix.EPIPE):
			all = nil
		case err != nil:
			t.Fatal(err)
		default:
			all = append(all, bytes.Clone(buf[:n]))
		}
	}
}

// All records in this kernel's ring are handed over, in order and with their numbers.
func TestRealRing(t *testing.T) {
	raw := rawRing(t)
	if len(raw) == 0 {
		t.Skip("the kernel's log is empty")
	}
	r := New(Config{Lookback: everything})
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(time.Minute))
	defer cancel()
	var first hostfs.KernelRecord
	if _, err := hostfs.ParseKernelRecord(raw[0], &first); err != nil {
		t.Fatalf("%q: %v", raw[0], err)
	}
	next, last := uint64(0), first.Seq+uint64(len(raw))-1
	seen := map[uint64]string{}
	err := r.Run(ctx, func(item logs.Item) error {
		if item.Loss != nil {
			// Another process may be flooding the log right now; any other loss is an error.
			if item.Loss.Reason != logs.Overrun {
				t.Errorf("loss: %+v", *item.Loss)
			}
			next += item.Loss.Lines
			return nil
		}
		l := item.Line
		if next != 0 && l.Seq != next {
			t.Errorf("line %d follows %d", l.Seq, next-1)
		}
		next = l.Seq + 1
		seen[l.Seq] = string(l.Text)
		if age := time.Since(l.Time); age < -time.Second || l.BootTime <= 0 && l.Seq > 1000 {
			t.Errorf("line %d is %v old, %v after the boot", l.Seq, age, l.BootTime)
		}
		if l.Seq >= last {
			cancel()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var rec hostfs.KernelRecord
	compared := 0
	for _, b := range raw {
		if _, err := hostfs.ParseKernelRecord(b, &rec); err != nil {
			t.Errorf("%q: %v", b, err)
		}
		text, ok := seen[rec.Seq]
		if !ok {
			continue // overwritten in the meantime
		}
		compared++
		if !strings.Contains(string(b), ";") || text != string(rec.Text) {
			t.Errorf("%d is %q, want that of %q", rec.Seq, text, b)
		}
	}
	t.Logf("%d records of %d compared", compared, len(raw))
	if compared == 0 {
		t.Error("nothing compared")
	}

	// The next run reports none of these again.
	again := New(Config{Position: r.Position(), Lookback: everything})
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := again.Run(ctx, func(item logs.Item) error {
		if item.Line != nil && item.Line.Seq < next {
			t.Errorf("line %d is reported again", item.Line.Seq)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A buffer that is too small loses the records that do not fit, grows, and counts each loss.
func TestRealRingWithASmallBuffer(t *testing.T) {
	raw := rawRing(t)
	if len(raw) < 10 {
		t.Skip("the kernel's log is nearly empty")
	}
	r := New(Config{Position: "none 0"}) // of another boot: from the start, every gap counted
	r.buffer = 16
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(time.Minute))
	defer cancel()
	var lines, lost, tooLong uint64
	err := r.Run(ctx, func(item logs.Item) error {
		switch {
		case item.Line != nil:
			lines++
			if seq := item.Line.Seq; lines+lost+tooLong != seq+1 {
				t.Errorf("at record %d: %d lines, %d lost, %d too long", seq, lines, lost, tooLong)
			}
		case item.Loss.Reason == logs.TooLong:
			tooLong += item.Loss.Lines
		default:
			lost += item.Loss.Lines
		}
		if lines >= 5 {
			cancel()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if tooLong == 0 || lines == 0 {
		t.Errorf("%d lines, %d too long: the buffer was not too small", lines, tooLong)
	}
}

// Reading ends with the context although nothing is logged.
func TestCancelWhileWaiting(t *testing.T) {
	rawRing(t)
	ctx, cancel := context.WithCancel(t.Context())
	var opened atomic.Bool
	r := New(Config{Status: func(err error) {
		if err != nil {
			t.Error(err)
		}
		opened.Store(true)
		time.AfterFunc(20*time.Millisecond, cancel)
	}})
	done := make(chan error)
	go func() { done <- r.Run(ctx, func(logs.Item) error { return nil }) }()
	select {
	case err := <-done:
		if err != nil || !opened.Load() {
			t.Errorf("Run = %v, opened %v", err, opened.Load())
		}
	case <-time.After(testenv.Within(time.Minute)):
		t.Fatal("Run goes on")
	}
}
