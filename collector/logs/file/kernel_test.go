package file

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/logs"
)

func TestKernelLines(t *testing.T) {
	now := time.Date(2026, time.November, 23, 22, 31, 5, 0, time.UTC)
	d, err := NewParser(Format{Kernel: true, Location: time.UTC}, []string{"skipped"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		line, text string
		stamp      time.Duration
		v          verdict
	}{
		{"Nov 23 22:31:00 node kernel: [  123.456789] md: md0 stopped.", "md: md0 stopped.", 123456789 * time.Microsecond, take},
		{"Nov 23 22:31:00 node kernel: [12345.000001][  T12] md: [a] b", "md: [a] b", 12345000001 * time.Microsecond, take},
		{"2026-11-23T22:31:00+00:00 node kernel: [    0.000001][    C0]  indented", " indented", time.Microsecond, take},
		{"2026-11-23T22:31:00.000000Z node kernel: [    1.000000] [T1] by hand", "[T1] by hand", time.Second, take},
		{"Nov 23 22:31:00 node kernel: [    2.000000] tab#011and #9 and #012#177 and #200", `tab\x09and #9 and \x0a\x7f and #200`, 2 * time.Second, take},
		{"Nov 23 22:31:00 node kernel: [    3.000000] \x1b[2J", `\x1b[2J`, 3 * time.Second, take},
		{"Nov 23 22:31:00 node kernel: [    4.000000]", "", 4 * time.Second, take},
		{"Nov 23 22:31:00 node CRON[1]: kernel: [    5.000000] x", "", 0, passBy},
		{"Nov 23 22:31:00 kernel: [    5.000000] x", "", 0, passBy}, // here kernel is the host's name
		{"Nov 23 22:31:00 node kernel: [    5.000000] skipped", "", 0, leaveOut},
		{"Nov 23 22:31:00 node CRON[1]: [    5.000000] skipped", "", 0, passBy},
		{"Nov 23 22:31:00 node kernel: skipped", "", 0, passBy},
		{"skipped", "", 0, passBy},
		{"Nov 23 22:31:00 node kernel: md: md0 stopped.", "", 0, malformed},
		{"Nov 23 22:31:00 node kernel: [5.00000] x", "", 0, malformed},
		{"Nov 23 22:31:00 node kernel: [-5.000000] x", "", 0, malformed},
		{"md: md0 stopped.", "", 0, malformed},
		{"2026-11-23T22:31:00", "", 0, malformed},
		{"", "", 0, malformed},
	} {
		text, at, v := d.decode([]byte(tt.line), now)
		if v != tt.v {
			t.Errorf("%q: verdict %d, want %d", tt.line, v, tt.v)
			continue
		}
		if v == take && (string(text) != tt.text || d.kernel.stamp != tt.stamp || !at.Equal(now.Add(-5*time.Second))) {
			t.Errorf("%q: %q, %v, at %v", tt.line, text, d.kernel.stamp, at)
		}
	}
	line := []byte("Nov 23 22:31:00 node kernel: [  123.456789] md: md0 stopped.")
	if n := testing.AllocsPerRun(100, func() { d.decode(line, now) }); n > 0 {
		t.Errorf("%v allocations a line", n)
	}
}

// A position has the stamp of the line before it, whatever was read behind it: only a line with
// that stamp continues a message that was handed over.
func TestKernelLineAfterRestart(t *testing.T) {
	const first, same, other = "[  121.000000] first", "[  121.000000] second", "[  122.000000] second"
	for _, tt := range []struct {
		name          string
		before, after string
		continues     bool
	}{
		{name: "the next message was read before", before: first + "\n" + other},
		{name: "the next message comes after", before: first, after: other},
		{name: "the rest comes after", before: first, after: same, continues: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLog(t, filepath.Join(t.TempDir(), "kern.log"))
			put := func(text string) {
				for line := range strings.Lines(text) {
					l.write(time.Now().Format(time.Stamp) + " node kernel: " + strings.TrimSuffix(line, "\n") + "\n")
				}
			}
			put(tt.before)
			cfg := Config{Path: l.path, Format: Format{Kernel: true, Location: time.Local}, Lookback: time.Hour}
			// one returns the first line that is handed over, and stops the reader with it.
			one := func() (got logs.Line) {
				r, err := New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if err := r.Run(ctx, func(item logs.Item) error {
					got = clone(item.Line)
					cancel()
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				cfg.Position = r.Position()
				return got
			}
			if got := one(); string(got.Text) != "first" || got.Continues {
				t.Fatalf("first: %+v", got)
			}
			put(tt.after)
			if got := one(); string(got.Text) != "second" || got.Continues != tt.continues {
				t.Errorf("%q, continues %t, want %t", got.Text, got.Continues, tt.continues)
			}
		})
	}
}
