package kmsg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
)

// ring is a test device: reads return its steps one after the other, and at the end, waiting
// cancels the test's context.
type ring struct {
	steps []step
	at    int
	end   context.CancelFunc
	waits int
}

// step is what one read returns.
type step struct {
	record string
	errno  unix.Errno
}

func (r *ring) read(b []byte) (int, error) {
	if r.at == len(r.steps) {
		return -1, unix.EAGAIN
	}
	s := r.steps[r.at]
	r.at++
	if s.errno != 0 {
		return -1, s.errno
	}
	if len(s.record) > len(b) {
		return -1, unix.EINVAL
	}
	return copy(b, s.record), nil
}

func (r *ring) wait(context.Context) error {
	r.waits++
	if r.at == len(r.steps) {
		r.end()
	}
	return nil
}

func (*ring) close() error { return nil }

// line returns a record with its number as text; failing returns a step in which read fails with
// e.
func line(seq int) step         { return step{record: fmt.Sprintf("6,%d,%d,-;%d\n", seq, seq*1000, seq)} }
func failing(e unix.Errno) step { return step{errno: e} }

// collect runs a reader over steps. Items are returned as "5" for line number 5 and as "overrun:3"
// for a loss.
func collect(t *testing.T, cfg Config, boot string, steps ...step) (items []string, at logs.Position) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := New(cfg)
	r.boot = boot
	r.open = func(context.Context, string) (device, error) { return &ring{steps: steps, end: cancel}, nil }
	err := r.Run(ctx, func(item logs.Item) error {
		items = append(items, describe(item))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// Without the clock's offset, because the stamps are made up.
	return items, logs.Position(strings.Join(strings.Fields(string(r.Position()))[:2], " "))
}

// A record from the time between two runs gets the time that it would have got in the first run:
// both runs use the same clock offset.
func TestClockOfAnEarlierRun(t *testing.T) {
	const off = 20 * time.Second // the scheduler's clock is behind
	stamp := hostfs.Monotonic() - off
	run := func(at logs.Position, steps ...step) (logs.Line, logs.Position) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := New(Config{Position: at, Lookback: everything})
		r.boot = "here"
		r.open = func(context.Context, string) (device, error) { return &ring{steps: steps, end: cancel}, nil }
		var last logs.Line
		if err := r.Run(ctx, func(item logs.Item) error { last = clone(item.Line); return nil }); err != nil {
			t.Fatal(err)
		}
		return last, r.Position()
	}
	record := func(seq int, at time.Duration) step {
		return step{record: fmt.Sprintf("3,%d,%d,-;x\n", seq, at.Microseconds())}
	}
	first, at := run("", failing(unix.EAGAIN), record(1, stamp))
	second, _ := run(at, record(2, stamp+time.Millisecond))
	if gap := second.BootTime - first.BootTime; gap < 0 || gap > time.Second {
		t.Errorf("a millisecond apart, and reported with times %v apart", gap)
	}
	if _, ok := parsePosition("here 4 soon"); ok {
		t.Error("no duration: accepted")
	}
	// A newer version may have added words.
	if p, ok := parsePosition("here 4 5ms later"); !ok || p != (position{boot: "here", next: 4, offset: 5 * time.Millisecond}) {
		t.Errorf("with more: %+v, %v", p, ok)
	}
}

// A corrupted position is refused or harmless.
func FuzzPosition(f *testing.F) {
	f.Add("f3b1e1e1-0b6c-4a5e-8f43-5d1a4f0b6f8e 4711")
	f.Add("f3b1e1e1-0b6c-4a5e-8f43-5d1a4f0b6f8e 18446744073709551615 -4.5ms later")
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := parsePosition(logs.Position(text))
		if !ok {
			return
		}
		if again, ok := parsePosition(p.text()); !ok || again != p {
			t.Errorf("%q is %+v, and %+v, %v", text, p, again, ok)
		}
	})
}

func describe(item logs.Item) string {
	if item.Loss != nil {
		return fmt.Sprintf("%s:%d", item.Loss.Reason, item.Loss.Lines)
	}
	return string(item.Line.Text)
}

const everything = time.Duration(math.MaxInt64)

func TestRun(t *testing.T) {
	again := failing(unix.EAGAIN)
	for _, tt := range []struct {
		name  string
		cfg   Config
		steps []step
		want  []string
		at    logs.Position
	}{
		{
			name: "all since boot", cfg: Config{Lookback: everything},
			steps: []step{line(0), line(1), again, line(2)},
			want:  []string{"0", "1", "2"}, at: "here 3",
		},
		{
			name:  "new lines only",
			steps: []step{line(4), line(5), again, line(6), line(7)},
			want:  []string{"6", "7"}, at: "here 8",
		},
		{
			name:  "nothing new: what is old is not reported after a restart",
			steps: []step{line(4), line(5)},
			at:    "here 6",
		},
		{
			name: "overrun: the gap is counted exactly", cfg: Config{Lookback: everything},
			steps: []step{line(0), failing(unix.EPIPE), line(57), line(58), failing(unix.EPIPE), line(100)},
			want:  []string{"0", "overrun:56", "57", "58", "overrun:41", "100"}, at: "here 101",
		},
		{
			name: "a gap without EPIPE", cfg: Config{Lookback: everything},
			steps: []step{line(0), line(3)},
			want:  []string{"0", "overrun:2", "3"}, at: "here 4",
		},
		{
			name: "what an earlier run handed over is not reported again", cfg: Config{Position: "here 2", Lookback: everything},
			steps: []step{line(0), line(1), line(2), again, line(3)},
			want:  []string{"2", "3"}, at: "here 4",
		},
		{
			name: "lost between two runs", cfg: Config{Position: "here 2"},
			steps: []step{line(10), line(11)},
			want:  []string{"overrun:8", "10", "11"}, at: "here 12",
		},
		{
			name: "all of a new boot is new", cfg: Config{Position: "there 1000"},
			steps: []step{line(0), line(1)},
			want:  []string{"0", "1"}, at: "here 2",
		},
		{
			name: "lost since a new boot", cfg: Config{Position: "there 1000"},
			steps: []step{line(30), line(31)},
			want:  []string{"overrun:30", "30", "31"}, at: "here 32",
		},
		{
			name: "a bad position", cfg: Config{Position: "nonsense"},
			steps: []step{line(4), again, line(5)},
			want:  []string{"bad-position:0", "5"}, at: "here 6",
		},
		{
			name: "a position ahead of its boot", cfg: Config{Position: "here 900"},
			steps: []step{line(4), line(5), again, line(6)},
			want:  []string{"bad-position:0", "6"}, at: "here 7",
		},
		{
			name: "a position at the end", cfg: Config{Position: "here 6"},
			steps: []step{line(4), line(5), again, line(6)},
			want:  []string{"6"}, at: "here 7",
		},
		{
			name: "no record of a number", cfg: Config{Lookback: everything},
			steps: []step{line(0), {record: "garbage"}, line(2), {record: "6,3,x,-;x"}, line(4), {record: "6,-"}, line(9)},
			want:  []string{"0", "malformed:1", "2", "malformed:1", "4", "malformed:1", "overrun:3", "9"}, at: "here 10",
		},
		{
			name: "longer than the kernel's limit", cfg: Config{Lookback: everything},
			steps: []step{line(0), {record: "6,1,1,-;" + string(make([]byte, bufferSize))}, line(2), {record: "6,3,1,-;" + string(make([]byte, bufferSize))}},
			want:  []string{"0", "too-long:1", "2", string(make([]byte, bufferSize))}, at: "here 4",
		},
		{
			name: "interrupted", cfg: Config{Lookback: everything},
			steps: []step{line(0), failing(unix.EINTR), line(1)},
			want:  []string{"0", "1"}, at: "here 2",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, at := collect(t, tt.cfg, "here", tt.steps...)
			if !slices.Equal(got, tt.want) || at != tt.at {
				t.Errorf("got %q at %q, want %q at %q", got, at, tt.want, tt.at)
			}
		})
	}
}

// An error of handle ends reading, and what was not handled is handed over by the next run.
func TestHandleFails(t *testing.T) {
	full := errors.New("full")
	for _, failAt := range []string{"1", "overrun:7"} {
		r := New(Config{Lookback: everything})
		r.boot = "here"
		r.open = func(context.Context, string) (device, error) {
			return &ring{steps: []step{line(0), line(1), line(9)}}, nil
		}
		err := r.Run(t.Context(), func(item logs.Item) error {
			if describe(item) == failAt {
				return full
			}
			return nil
		})
		if err != full { //nolint:errorlint // it has to be the very error
			t.Errorf("Run = %v, want the handler's error", err)
		}
		next, _ := collect(t, Config{Position: r.Position()}, "here", line(0), line(1), line(9))
		if len(next) == 0 || next[0] != failAt {
			t.Errorf("after %q failed the next run begins with %q", failAt, next)
		}
	}
}

func TestRunFails(t *testing.T) {
	r := New(Config{Path: filepath.Join(t.TempDir(), "none")})
	if err := r.Run(t.Context(), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a device: %v", err)
	}
	r = New(Config{Position: "there 4"})
	r.boot = ""
	if err := r.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "ID of this boot") {
		t.Errorf("without a boot id: %v", err)
	}
	if r.Position() != "there 4" {
		t.Errorf("the position is lost: %q", r.Position())
	}
	r = New(Config{})
	r.open = func(context.Context, string) (device, error) { return &ring{steps: []step{failing(unix.EIO)}}, nil }
	if err := r.Run(t.Context(), nil); !errors.Is(err, unix.EIO) {
		t.Errorf("a device that fails: %v", err)
	}
}

func TestPosition(t *testing.T) {
	for _, bad := range []logs.Position{"", " ", "x", "x y", " 4", "x -1", "x 1 2", "x 18446744073709551616"} {
		if p, ok := parsePosition(bad); ok {
			t.Errorf("parsePosition(%q) = %+v", bad, p)
		}
	}
	want := position{boot: "8cb6abed-1437-47b8-a7a0-301c808527ce", next: math.MaxUint64}
	if got, ok := parsePosition(want.text()); !ok || got != want {
		t.Errorf("%q reads as %+v, %v", want.text(), got, ok)
	}
}

func TestOnceEndsWhereTheLogEnds(t *testing.T) {
	reader := func() *Reader {
		r := New(Config{Lookback: everything})
		r.boot = "b"
		r.open = func(context.Context, string) (device, error) {
			return &ring{steps: []step{line(1), failing(unix.EPIPE), line(5), line(6)}}, nil
		}
		return r
	}
	var items []string
	r := reader()
	err := r.Once(t.Context(), func(item logs.Item) error {
		items = append(items, describe(item))
		return nil
	})
	if want := []string{"1", "overrun:3", "5", "6"}; err != nil || !slices.Equal(items, want) {
		t.Errorf("%q, %v; want %q", items, err, want)
	}
	if r.Position() == "" {
		t.Error("no position")
	}
	enough := errors.New("enough")
	if err := reader().Once(t.Context(), func(logs.Item) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("error %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := reader().Once(ended, func(logs.Item) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if err := New(Config{Path: "/no/such"}).Once(t.Context(), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// clone returns a copy of a line that stays valid.
func clone(l *logs.Line) logs.Line {
	c := *l
	c.Text = bytes.Clone(l.Text)
	return c
}
