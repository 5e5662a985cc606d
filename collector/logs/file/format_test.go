package file

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // for machines without it

	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestDecode(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	kernel := Format{Timestamp: "^.{15}", Message: `kernel: \[.*\] (.*)`, TimestampFormat: "Jan _2 15:04:05", Location: time.UTC}
	docker := Format{Timestamp: `^time="(\S*)"`, Message: `msg="([^\n]*)"`, TimestampFormat: "2006-01-02T15:04:05.999999999-07:00"}
	disk := Format{Timestamp: "^.{15}", Message: "(?i)Currently unreadable.*sectors|(?i)Offline uncorrectable sectors", TimestampFormat: "Jan _2 15:04:05", Location: time.UTC}
	for _, tt := range []struct {
		name   string
		format Format
		skip   []string
		line   string
		want   verdict
		text   string
		at     time.Time
	}{
		{name: "the whole line", line: "anything", text: "anything", at: now},
		{
			name: "NPD's kernel log", format: kernel, line: "Jan  2 03:04:05 node kernel: [12345.678901] BUG: unable to handle",
			text: "BUG: unable to handle", at: time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC),
		},
		{
			name: "last year's", format: kernel, line: "Dec 31 23:59:59 node kernel: [1.0] x",
			text: "x", at: time.Date(2025, time.December, 31, 23, 59, 59, 0, time.UTC),
		},
		{name: "of another program", format: kernel, line: "Jan  2 03:04:05 node sshd[1]: x", want: passBy},
		{name: "no time", format: kernel, line: "somewhen, kernel: [1.0] x", want: malformed},
		{name: "too short for a time", format: kernel, line: "kernel: [1] x", want: malformed},
		{
			name: "NPD's docker log", format: docker, line: `time="2017-02-01T17:58:34.999999999+01:00" level=error msg="a message"`,
			text: "a message", at: time.Date(2017, time.February, 1, 16, 58, 34, 999999999, time.UTC),
		},
		{name: "no time of docker", format: docker, line: `level=error msg="a message"`, want: malformed},
		{
			name: "NPD's disk log: the message is a filter", format: disk, line: "Feb 29 00:00:00 node smartd: Device: /dev/sda, 8 Currently unreadable (pending) sectors",
			text: "Currently unreadable (pending) sectors", at: time.Date(2024, time.February, 29, 0, 0, 0, 0, time.UTC),
		},
		{name: "not one of those", format: disk, line: "Feb 28 00:00:00 node smartd: all is well", want: passBy},
		{name: "skipped", format: kernel, skip: []string{"y", "BUG"}, line: "Jan  2 03:04:05 node kernel: [12345.678901] BUG: unable to handle", want: passBy},
		{
			name: "a group that takes no part", format: Format{Message: "x(y)?"}, line: "axb", text: "", at: now,
		},
		{
			name: "CRI", format: Format{Timestamp: `^(\S+)`, TimestampFormat: time.RFC3339Nano, Message: `^\S+ \S+ [FP] (.*)$`},
			line: "2026-02-28T10:11:12.123456789Z stderr F panic: x", text: "panic: x", at: time.Date(2026, 2, 28, 10, 11, 12, 123456789, time.UTC),
		},
		{
			name: "not UTF-8", format: kernel, line: "Jan  2 03:04:05\xff node kernel: [1.0] \xfe\xff",
			text: "\xfe\xff", at: time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := NewParser(tt.format, tt.skip)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time from the cache
				text, at, v := d.decode([]byte(tt.line), now)
				if v != tt.want || v == take && (string(text) != tt.text || !at.Equal(tt.at)) {
					t.Errorf("got %q, %v, %v; want %q, %v, %v", text, at, v, tt.text, tt.at, tt.want)
				}
			}
		})
	}
}

// The shortcut for "^.{15}" returns the same as the regexp.
func TestLeading(t *testing.T) {
	for expr, want := range map[string]int{
		"^.{15}": 15, "^(.{3})": 3, "^.{1,15}": 0, "^.{15}x": 0, ".{15}": 0, "^.": 0, "(?s)^.{15}": 0, "(?m)^.{15}": 0, "^[^ ]{15}": 0, "": 0, "^": 0,
	} {
		if got := leading(expr); got != want {
			t.Errorf("leading(%q) = %d, want %d", expr, got, want)
		}
	}
	x, err := newExtractor("^.{5}")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"", "1234", "12345", "123456", "äöüß€x", "\xff\xff\xff\xff\xff\xff", "12\n3456", "\x00\x00\x00\x00\x00"} {
		short, ok := x.extract([]byte(line))
		long := x.re.Find([]byte(line))
		if ok != (long != nil) || string(short) != string(long) {
			t.Errorf("of %q: %q, %v; want %q", line, short, ok, long)
		}
	}
}

func TestYearsAndDays(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ layout, text, now, want string }{
		{"Jan _2 15:04:05", "Jan  1 00:00:10", "2026-01-01T00:00:20+01:00", "2026-01-01T00:00:10+01:00"},
		{"Jan _2 15:04:05", "Dec 31 23:59:50", "2026-01-01T00:00:20+01:00", "2025-12-31T23:59:50+01:00"},
		// The writer's clock is ahead of ours.
		{"Jan _2 15:04:05", "Jan  1 00:00:10", "2025-12-31T23:59:50+01:00", "2026-01-01T00:00:10+01:00"},
		{"Jan _2 15:04:05", "Jan  2 12:00:00", "2025-12-31T23:59:50+01:00", "2025-01-02T12:00:00+01:00"},
		{"Jan _2 15:04:05", "Feb 29 12:00:00", "2025-03-01T00:00:00+01:00", "2024-02-29T12:00:00+01:00"},
		{"Jan _2 15:04:05", "Feb 29 12:00:00", "2028-02-28T13:00:00+01:00", "2028-02-29T12:00:00+01:00"},
		{"Jan _2 15:04:05", "Feb 29 12:00:00", "2103-02-28T13:00:00+01:00", "2096-02-29T12:00:00+01:00"},
		{"Mon Jan _2 15:04:05", "Thu Jul  2 12:00:00", "2026-08-01T00:00:00+02:00", "2026-07-02T12:00:00+02:00"},
		// Noon in summer and winter.
		{"Jan _2 15:04:05", "Jul  1 12:00:00", "2026-01-01T00:00:20+01:00", "2025-07-01T12:00:00+02:00"},
		{"15:04:05", "23:59:50", "2026-01-01T00:00:20+01:00", "2025-12-31T23:59:50+01:00"},
		{"15:04:05", "00:00:10", "2026-01-01T00:00:20+01:00", "2026-01-01T00:00:10+01:00"},
		{"15:04:05", "00:30:00", "2026-01-01T00:00:20+01:00", "2026-01-01T00:30:00+01:00"},
		{"2006-01-02 15:04:05", "1999-12-31 23:59:59", "2026-01-01T00:00:20+01:00", "1999-12-31T23:59:59+01:00"},
		{"06-01-02 15:04", "99-12-31 23:59", "2026-01-01T00:00:20+01:00", "1999-12-31T23:59:00+01:00"},
		{time.RFC3339, "2099-01-01T00:00:00Z", "2026-01-01T00:00:20+01:00", "2099-01-01T00:00:00Z"},
		{"Jan _2 15:04:05 -0700", "Dec 31 23:30:00 -0500", "2026-01-01T05:00:00Z", "2025-12-31T23:30:00-05:00"},
	} {
		l, ok := parseLayout(tt.layout, berlin)
		if !ok {
			t.Fatal(tt.layout)
		}
		now, err := time.Parse(time.RFC3339, tt.now)
		if err != nil {
			t.Fatal(err)
		}
		want, err := time.Parse(time.RFC3339, tt.want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := l.parse(tt.text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q at %s is %v, %v; want %v", tt.text, tt.now, got, err, want)
		}
	}
	for _, bad := range []string{"", "year", "%Y-%m-%d"} {
		if _, ok := parseLayout(bad, nil); ok {
			t.Errorf("layout %q is accepted", bad)
		}
	}
}

func FuzzTimestamp(f *testing.F) {
	for _, layout := range []string{"Jan _2 15:04:05", "15:04:05", time.RFC3339Nano, "2006-01-02T15:04:05.999999999-07:00", "Mon Jan 2 15:04", time.Kitchen, time.RFC1123Z, "06/1/2 MST 3pm"} {
		for _, text := range []string{"Jan  2 03:04:05", "Feb 29 23:59:60", "2026-01-02T03:04:05Z", "", "12:34:56", "9:00AM", "99/2/30 CET 3pm"} {
			f.Add(layout, text, int64(1_770_000_000))
		}
	}
	f.Fuzz(func(t *testing.T, layout, text string, unix int64) {
		l, ok := parseLayout(layout, time.UTC)
		if !ok {
			return
		}
		now := time.Unix(unix%(1<<33), 0).UTC()
		at, err := l.parse(text, now)
		if err != nil || !l.noYear {
			return
		}
		if late := at.Sub(now); late > slack+time.Hour || late < -9*366*24*time.Hour {
			t.Errorf("%q by %q at %v is %v, %v off", text, layout, now, at, late)
		}
	})
}

func TestConfigErrors(t *testing.T) {
	_, err := New(Config{
		Lookback: time.Minute, Skip: []string{""},
		Format: Format{TimestampFormat: "x", Message: "("},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"path is missing", "lookback needs", "skipList", "must be set together", "message: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if _, err := New(Config{Path: "x", Format: Format{Timestamp: "(", TimestampFormat: "x"}}); err == nil || !strings.Contains(err.Error(), "timestamp: ") || !strings.Contains(err.Error(), "timestampFormat: ") {
		t.Error(err)
	}
}

// Lookback of ten minutes, into files that were rotated in the meantime.
func TestLookback(t *testing.T) {
	l := newLog(t, filepath.Join(t.TempDir(), "kern.log"))
	now := time.Now()
	line := func(minutes int, text string) string {
		return fmt.Sprintf("%s node kernel: [1.0] %s\n", now.Add(-time.Duration(minutes)*time.Minute).Format("Jan _2 15:04:05"), text)
	}
	l.put("kern.log.2", line(200, "ancient"))
	l.earlier("kern.log.2")
	l.put("kern.log.1", line(30, "old")+line(8, "eight")+"no time kernel: [1.0] x\n"+"kernel: [1.0] y\n"+line(6, "six"))
	l.later(filepath.Join(filepath.Dir(l.path), "kern.log.1"))
	l.write(line(5, "five"))
	l.clock = now
	l.later(l.path)
	cfg := Config{
		Path: l.path, Lookback: 10 * time.Minute,
		Format: Format{Timestamp: "^.{15}", Message: `kernel: \[.*\] (.*)`, TimestampFormat: "Jan _2 15:04:05"},
	}
	l.clock = now.Add(-6 * time.Minute)
	l.later(filepath.Join(filepath.Dir(l.path), "kern.log.1"))
	c := start(t, cfg).up()
	c.want("eight", "-malformed:2", "six", "five")
	// A writer whose clock is behind is not ignored once the end was reached.
	handed := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.items)
	}
	testenv.Until(t, "a fifth line", patience, func() bool {
		l.write(line(20, "twenty"))
		return handed() > 4
	})
	c.until("a line of twenty minutes ago", func() bool { return len(c.items) > 4 && c.items[4] == "twenty" })
	l.write(line(1, "the last")) // later than all those of twenty minutes ago
	c.until("the last line", func() bool { return c.items[len(c.items)-1] == "the last" })
	cfg.Position = c.stop()
	if got := now.Sub(c.lines[1].Time).Round(time.Minute); got != 6*time.Minute {
		t.Errorf("the line of six minutes ago is %v old", got)
	}
	l.write(line(0, "now"))
	start(t, cfg).want("now")
}

// A wrong format is reported, but not once per line.
func TestWrongFormat(t *testing.T) {
	l := newLog(t, filepath.Join(t.TempDir(), "app.log"))
	c := start(t, Config{Path: l.path, Format: Format{Timestamp: "^.{15}", TimestampFormat: "Jan _2 15:04:05"}}).up()
	l.write(strings.Repeat("2026-01-02 03:04:05 a line\n", 1000) + "Jan  2 03:04:05 a line\n")
	c.until("line", func() bool { return len(c.lines) == 1 })
	n := 0
	for _, item := range c.items {
		var more int
		if _, err := fmt.Sscanf(item, "-malformed:%d", &more); err == nil {
			n += more
		}
	}
	if n != 1000 || len(c.items) > 10 || !slices.Contains(c.items, "Jan  2 03:04:05 a line") {
		t.Errorf("%d malformed of 1000 in %d items", n, len(c.items))
	}
}
