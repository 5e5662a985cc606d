package kmsg

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
)

func TestLineOfARecord(t *testing.T) {
	var got logs.Line
	cfg := Config{Lookback: everything}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := New(cfg)
	r.boot = "here"
	now := hostfs.Monotonic()
	r.open = func(context.Context, string) (device, error) {
		return &ring{end: cancel, steps: []step{
			failing(unix.EAGAIN),
			{record: fmt.Sprintf("3,9,%d,c;text\n SUBSYSTEM=block\n DEVICE=b8:0\n", now.Microseconds())},
		}}, nil
	}
	if err := r.Run(ctx, func(item logs.Item) error { got = clone(item.Line); return nil }); err != nil {
		t.Fatal(err)
	}
	if age := time.Since(got.Time); age < 0 || age > time.Minute {
		t.Errorf("a record of now is reported with time %v", got.Time)
	}
	if got.Seq != 9 || got.Priority != "err" || got.Origin != event.OriginKernel || got.BootTime <= 0 ||
		string(got.Text) != "text" || !got.Continues {
		t.Errorf("got %+v", got)
	}
}

// A record that was waited for is dated now, however far the scheduler's clock has drifted.
func TestClockIsCalibrated(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := New(Config{Lookback: everything})
	r.boot = "here"
	behind := (hostfs.Monotonic() / 2).Microseconds()
	r.open = func(context.Context, string) (device, error) {
		return &ring{end: cancel, steps: []step{
			{record: fmt.Sprintf("3,1,%d,-;old\n", behind-1)},
			failing(unix.EAGAIN),
			{record: fmt.Sprintf("3,2,%d,-;waited for\n", behind)},
			{record: fmt.Sprintf("3,3,%d,-;at once\n", behind)},
		}}, nil
	}
	var ages []time.Duration
	if err := r.Run(ctx, func(item logs.Item) error { ages = append(ages, time.Since(item.Line.Time)); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(ages) != 3 || ages[1] > 10*time.Second || ages[2] > 10*time.Second || ages[0] < ages[1] {
		t.Errorf("ages %v", ages)
	}
}

// A line causes no allocation from read to handle.
func TestNoAllocation(t *testing.T) {
	s := &stream{
		r: New(Config{}), handle: func(logs.Item) error { return nil }, clock: hostfs.NewClock(),
	}
	in := []byte("6,0,10601675354,-;some text with caf\\xc3\\xa9\n DEVICE=b8:0\n")
	if n := testing.AllocsPerRun(100, func() {
		s.known = false
		if err := s.record(in); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a line", n)
	}
}

// The flood that made other readers stop: 56,000 lines in 3 s.
func BenchmarkReader(b *testing.B) {
	const flood = 56_000
	steps := make([]step, flood)
	for i := range steps {
		steps[i] = step{record: fmt.Sprintf("6,%d,%d,-;Memory cgroup out of memory: Killed process %d (stress) total-vm:104400kB, anon-rss:32000kB\n", i, i, i)}
	}
	b.ReportAllocs()
	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		r := New(Config{Lookback: everything})
		r.open = func(context.Context, string) (device, error) { return &ring{steps: steps, end: cancel}, nil }
		lines := 0
		if err := r.Run(ctx, func(item logs.Item) error { lines++; return nil }); err != nil || lines != flood {
			b.Fatal(lines, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/flood, "ns/line")
	b.ReportMetric(0, "ns/op")
}

func TestOnlyFacility0IsTheKernel(t *testing.T) {
	for facility := -1; facility < 300; facility++ {
		if name := facilityName(facility); (name == "kernel") != (facility == 0) || name == "" {
			t.Errorf("facility %d is %q", facility, name)
		}
	}
}
