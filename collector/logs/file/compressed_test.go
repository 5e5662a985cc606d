package file

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// logLines returns lines that compress badly, of n bytes each.
func logLines(from, count, n int) (text string, lines []string) {
	rnd := rand.New(rand.NewPCG(1, uint64(from)))
	for i := range count {
		b := make([]byte, n)
		for j := range b {
			b[j] = "0123456789abcdefghijklmnopqrstuvwxyz"[rnd.IntN(36)]
		}
		lines = append(lines, fmt.Sprintf("line %d %s", from+i, b))
	}
	return strings.Join(lines, "\n") + "\n", lines
}

// rotate renames 2 to 3 and so on, as logrotate does; afterwards there is a 1.
func (l *logFile) rotate() {
	l.t.Helper()
	dir, base := filepath.Split(l.path)
	for n := 20; n >= 0; n-- {
		for _, ext := range []string{"", ".gz", ".zst"} {
			from := fmt.Sprintf("%s.%d%s", base, n, ext)
			if n == 0 {
				from = base + ext
			}
			err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, fmt.Sprintf("%s.%d%s", base, n+1, ext)))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				l.t.Fatal(err)
			}
		}
	}
	l.reopen()
}

// Files are rotated and compressed between two checks of the reader.
func TestCompressedWhileBusy(t *testing.T) {
	long, longLines := logLines(0, 50, 100)
	for _, tt := range []struct {
		name string
		busy func(l *logFile) // the reader is at the line "2"
		want []string
	}{
		{"each one before the last", func(l *logFile) {
			for i := range 5 {
				l.write(fmt.Sprintf("in %d\n", i))
				l.later(l.path)
				l.rotate()
				if i > 0 {
					l.compress("app.log.2", ".gz")
				}
			}
			l.write("end\n")
		}, []string{"in 0", "in 1", "in 2", "in 3", "in 4", "end"}},
		{"all of them", func(l *logFile) {
			for i := range 5 {
				l.write(fmt.Sprintf("in %d\n", i))
				l.later(l.path)
				l.rotate()
				l.compress("app.log.1", ".gz")
			}
			l.write("end\n")
		}, []string{"in 0", "in 1", "in 2", "in 3", "in 4", "end"}},
		{"more than the beginning that identifies", func(l *logFile) {
			l.write(long)
			l.later(l.path)
			l.rotate()
			l.compress("app.log.1", ".gz")
			l.write("end\n")
		}, append(slices.Clone(longLines), "end")},
		{"the same content twice", func(l *logFile) {
			for range 2 {
				l.rotate()
				l.write("same\n")
				l.later(l.path)
			}
			l.rotate()
			for n := 3; n > 0; n-- {
				l.compress(fmt.Sprint("app.log.", n), ".gz")
			}
			l.write("end\n")
		}, []string{"same", "same", "end"}},
		{"dates in the names, and the time of compressing", func(l *logFile) {
			for i := range 4 {
				l.write(fmt.Sprintf("in %d\n", i))
				l.later(l.path)
				l.rename(fmt.Sprintf("app.log.2026010%d-030405", i+1))
				l.reopen()
			}
			for i := range 3 {
				name := fmt.Sprintf("app.log.2026010%d-030405", 3-i)
				l.compress(name, ".gz")
				l.later(filepath.Join(filepath.Dir(l.path), name+".gz"))
			}
			l.write("end\n")
		}, []string{"in 0", "in 1", "in 2", "in 3", "end"}},
		{"copied, truncated and compressed at once", func(l *logFile) {
			for i := range 3 {
				l.write(fmt.Sprintf("in %d of several\n", i))
				name := fmt.Sprintf("app.log.%08d", i)
				l.copyTruncate(name)
				l.later(filepath.Join(filepath.Dir(l.path), name))
				l.compress(name, ".gz")
			}
			l.write("end\n")
		}, []string{"in 0 of several", "in 1 of several", "in 2 of several", "end"}},
		{"another compression", func(l *logFile) {
			for range 2 {
				l.write("not read\n")
				l.later(l.path)
				l.rotate()
			}
			l.compress("app.log.1", ".zst")
			l.write("end\n")
		}, []string{"not read", "-rotated:0", "end"}},
		{"beside what it is made of", func(l *logFile) {
			l.write("in 0\n")
			l.later(l.path)
			l.rotate()
			l.put("app.log.1.gz", "half of it")
			l.write("end\n")
		}, []string{"in 0", "end"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLog(t, filepath.Join(t.TempDir(), "app.log"))
			l.put("app.log.15.gz", "long ago")
			l.earlier("app.log.15.gz")
			l.put("app.log.16.zst", "longer ago")
			l.earlier("app.log.16.zst")
			c := start(t, Config{Path: l.path}).up()
			l.write("1\n")
			c.want("1")
			c.untilAt(`"offset":2`) // behind the line, which is handed over before
			at := c.r.Position()
			l.clock = time.Now()
			c.hold(l, "2")
			tt.busy(l)
			c.held.Unlock()
			want := append([]string{"1", "2"}, tt.want...)
			c.want(want...)
			// What was read is compressed later: nothing is handed over twice.
			for i := range 3 {
				line := fmt.Sprint("later ", i)
				l.write(line + "\n")
				want = append(want, line)
				c.want(want...)
				l.later(l.path)
				l.rotate()
				if i > 0 {
					l.compress("app.log.2", ".gz")
				}
			}
			l.write("the end\n")
			want = append(want, "the end")
			c.want(want...)
			c.stop()
			// A reader that starts at the position of the first check gets the same.
			start(t, Config{Path: l.path, Position: at}).want(want[1:]...)
		})
	}
}

// What is written to a rotated file after the reader has left it is read when the file is found
// compressed; nothing that was read is handed over twice.
func TestWrittenBeforeItWasCompressed(t *testing.T) {
	long, lines := logLines(0, 50, 100)
	l := newLog(t, filepath.Join(t.TempDir(), "app.log"))
	c := start(t, Config{Path: l.path}, func(r *Reader) { r.maxLine = 200 }).up()
	l.clock = time.Now()
	l.write(long)
	c.want(lines...)
	old, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	l.rotate()
	l.write("new\n")
	want := append(lines, "new")
	c.want(want...)
	c.hold(l, "newer")
	if _, err := old.WriteString("late\n"); err != nil {
		t.Fatal(err)
	}
	l.later(filepath.Join(filepath.Dir(l.path), "app.log.1"))
	l.compress("app.log.1", ".gz")
	l.later(l.path)
	l.rotate()
	l.write("end\n")
	c.held.Unlock()
	c.want(append(want, "newer", "late", "end")...)
}

// The file is compressed at once, while the writer continues in the deleted file.
func TestWrittenAfterItWasCompressed(t *testing.T) {
	for _, ext := range []string{".gz", ".zst"} {
		l := newLog(t, filepath.Join(t.TempDir(), "app.log"))
		c := start(t, Config{Path: l.path}, func(r *Reader) { r.pollEvery = 5 * time.Millisecond }).up()
		l.write("1\n")
		c.want("1")
		old := l.f
		l.f = nil
		l.clock = time.Now()
		l.rotate()
		l.compress("app.log.1", ext)
		l.put("seen", "") // and a look after that
		if _, err := old.WriteString("2\n"); err != nil {
			t.Fatal(err)
		}
		c.want("1", "2")
		l.write("3\n")
		c.want("1", "2", "3")
		l.later(l.path)
		l.rotate()
		l.write("4\n")
		c.want("1", "2", "3", "4")
		old.Close()
	}
}

// What an earlier reader has read is not handed over again because it has been compressed since,
// if the position is at the start of a file.
func TestRestartWhenCompressed(t *testing.T) {
	for _, ext := range []string{".gz", ".zst"} {
		for _, meanwhile := range []bool{false, true} {
			t.Run(fmt.Sprint(ext, meanwhile), func(t *testing.T) {
				l := newLog(t, filepath.Join(t.TempDir(), "app.log"))
				c := start(t, Config{Path: l.path}).up()
				l.clock = time.Now()
				var want []string
				for i := range 3 {
					line := fmt.Sprint("in ", i)
					l.write(line + "\n")
					want = append(want, line)
					c.want(want...)
					l.later(l.path)
					l.rotate()
				}
				// The reader is at the start of the file only when the file has content, and knows
				// the three files then.
				l.write("half")
				testenv.UntilShown(t, "a position that knows three files", patience, func() (bool, string) {
					at := string(c.r.Position())
					return strings.Count(at, `"time":`) == 3, at
				})
				at := c.stop()
				l.write(" of it\n")
				if meanwhile {
					l.later(l.path)
					l.rotate()
					l.compress("app.log.4", ext)
				}
				l.compress("app.log.3", ext)
				l.compress("app.log.2", ext)
				again := start(t, Config{Path: l.path, Position: at})
				l.write("end\n")
				again.want("half of it", "end")
			})
		}
	}
}

// A rotated file that can't be opened does not prevent others from being read.
func TestCannotBeOpened(t *testing.T) {
	l := newLog(t, filepath.Join(t.TempDir(), "app.log"))
	l.put("app.log.2", "1\n")
	l.put("app.log.1.gz", gzipOf(t, "2\n"))
	r, err := New(Config{Path: l.path})
	if err != nil {
		t.Fatal(err)
	}
	s := &follower{r: r, name: l.path}
	tries := 0
	got := s.firstUnread(nil, func() []sibling {
		tries++
		all := siblings(l.path)
		slices.SortFunc(all, func(a, b sibling) int { return -strings.Compare(a.plain, b.plain) })
		all[0].stat.ino++
		return all
	})
	if got == nil || tries != listTries {
		t.Fatalf("%v after %d tries", got, tries)
	}
	defer got.f.Close()
	if string(got.head) != "2\n" {
		t.Errorf("file %s that begins with %q", got.f.Name(), got.head)
	}
}

// Lookback reads compressed files, and ignores those it can't read.
func TestLookbackInCompressed(t *testing.T) {
	l := newLog(t, filepath.Join(t.TempDir(), "app.log"))
	stamp := func(ago time.Duration) string { return time.Now().Add(-ago).Format(time.RFC3339) }
	l.put("app.log.4.gz", gzipOf(t, stamp(4*time.Hour)+" too old\n"))
	l.earlier("app.log.4.gz")
	l.put("app.log.3.xz", "not read")
	recent := stamp(time.Minute) + " in it"
	l.put("app.log.2.gz", gzipOf(t, stamp(3*time.Hour)+" too old\n"+recent+"\n"))
	last := stamp(0) + " the last"
	l.write(last + "\n")
	format := Format{Timestamp: `^\S+`, TimestampFormat: time.RFC3339}
	start(t, Config{Path: l.path, Lookback: 30 * time.Minute, Format: format}).want(recent, last)
}

// A file compressed by hand is read to its end.
func TestOrderOfCompressed(t *testing.T) {
	for name, want := range map[string]string{
		"app.log": "", "app.log.1": "", "0.log.20260102-030405": "20260102030405", "app-2026-01-02T03-04-05.000.log": "20260102030405000",
		"app.log-02012026": "", "app.log-20012026": "", "app.log-1767323045": "", "app2026.log": "", "kern.log-202601": "",
	} {
		if got := rotationDate("/var/log/" + name); got != want {
			t.Errorf("rotationDate(%q) = %q, want %q", name, got, want)
		}
	}
	l := newLog(t, filepath.Join(t.TempDir(), "app.log"))
	l.clock = time.Now()
	names := []string{"app.log.3.gz", "app.log.2.xz", "app.log.1", "app.log-20260101.gz", "app.log-20260102.gz", "app.log-20260103"}
	for _, name := range names {
		l.put(name, "x")
		l.later(filepath.Join(filepath.Dir(l.path), name))
	}
	l.later(filepath.Join(filepath.Dir(l.path), "app.log-20260101.gz"))
	l.put("app.log-20260103.gz", "being made")
	var got []string
	for _, c := range siblings(l.path) {
		got = append(got, filepath.Base(c.name))
	}
	if !slices.Equal(got, names) {
		t.Errorf("%q", got)
	}
}
