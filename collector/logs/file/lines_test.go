package file

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestPartialLine(t *testing.T) {
	log := newLog(t, filepath.Join(t.TempDir(), "app.log"))
	after := testenv.Within(time.Second) // both parts of a line are written within this time
	c := start(t, Config{Path: log.path}, func(r *Reader) { r.partialAfter = after }).up()
	log.write("in one")
	log.write(" go\n")
	c.want("in one go")
	begun := time.Now()
	log.write("the writer stopped here")
	c.want("in one go", "the writer stopped here")
	// The reader counts from the beginning of its check, which may be before the write.
	if waited := time.Since(begun); waited < after*2/3 {
		t.Errorf("handed over after %v", waited)
	}
	// The rest is reported as a line of its own, and nothing twice.
	log.write(", and goes on\n")
	c.want("in one go", "the writer stopped here", ", and goes on")
}

func TestLongLines(t *testing.T) {
	log := newLog(t, filepath.Join(t.TempDir(), "app.log"))
	c := start(t, Config{Path: log.path}, func(r *Reader) { r.maxLine = 10 }).up()
	log.write("0123456789\n")
	c.want("0123456789")
	log.write("0123456789a\n")
	c.want("0123456789", "0123456789", "-too-long:1")
	// Its end comes in pieces; a megabyte of it is skipped.
	for range 16 {
		log.write(strings.Repeat("z", 64<<10))
	}
	c.want("0123456789", "0123456789", "-too-long:1", "zzzzzzzzzz")
	log.write("\nnext\n")
	c.want("0123456789", "0123456789", "-too-long:1", "zzzzzzzzzz", "-too-long:1", "next")
}

func TestLossOfLongLineIsMeasured(t *testing.T) {
	dir := t.TempDir()
	log := newLog(t, filepath.Join(dir, "app.log"))
	c := start(t, Config{Path: log.path}, func(r *Reader) { r.maxLine = 10 }).up()
	log.write("0123456789abc")
	c.want("0123456789")
	// After a restart the rest of the line is still skipped.
	at := c.stop()
	log.write("def\nnext\n")
	c = start(t, Config{Path: log.path, Position: at}, func(r *Reader) { r.maxLine = 10 })
	c.want("-too-long:1", "next")
	at = c.stop()
	log.write("a last line that never ends")
	c = start(t, Config{Path: log.path, Position: at}, func(r *Reader) { r.maxLine = 10 })
	c.want("a last lin")
	log.rename("app.log.1")
	log.reopen()
	log.write("x\n")
	c.want("a last lin", "-too-long:1", "x")
}

func TestBytesThatAreNoText(t *testing.T) {
	log := newLog(t, filepath.Join(t.TempDir(), "app.log"))
	c := start(t, Config{Path: log.path}, func(r *Reader) { r.maxLine = 100 }).up()
	log.write("\xff\xfe\x80 \x1b[31mred\x07\n")
	log.write("a\x00b\n")
	// What a crash leaves at the end of a file, longer than any line.
	log.write(strings.Repeat("\x00", 200_000) + "after the crash\n")
	c.want("\xff\xfe\x80 \x1b[31mred\x07", "a\x00b", "after the crash")
}

// split passes in to a splitter, in pieces of the given sizes in turn.
func split(in []byte, limit int, final bool, sizes ...int) (lines []string, total int, cuts uint64) {
	s := newSplitter(limit)
	for i := 0; ; i++ {
		for {
			b, size, p := s.next(len(in) == 0 && final)
			if p == none {
				break
			}
			total += size
			switch p {
			case whole, beginning:
				lines = append(lines, string(b))
			case ending:
				cuts += s.cut
			}
		}
		if len(in) == 0 {
			return lines, total, cuts
		}
		n := copy(s.room(), in[:min(len(in), max(1, sizes[i%len(sizes)]))])
		s.filled(n)
		in = in[n:]
	}
}

// However a file is read, the result is the same lines.
func FuzzSplitter(f *testing.F) {
	f.Add([]byte("a\nb\r\n\nlonger than ten bytes\n\x00\x00c\nrest"), 3, 1)
	f.Add([]byte("\x00\n\x00\x00\n0123456789\n01234567890\n"), 7, 10)
	f.Add(bytes.Repeat([]byte("x"), 50), 50, 2)
	f.Fuzz(func(t *testing.T, in []byte, a, b int) {
		const limit = 10
		lines, total, cuts := split(in, limit, true, len(in)+1)
		if total != len(in) {
			t.Fatalf("%d bytes of %d in %q", total, len(in), in)
		}
		again, _, _ := split(in, limit, true, a%20, b%20)
		if !slices.Equal(lines, again) {
			t.Fatalf("%q read at once is %q, in pieces of %d and %d %q", in, lines, a%20, b%20, again)
		}
		// The rest, neither a line nor cut, is line ends and zeros.
		kept := int(cuts)
		for _, l := range lines {
			if len(l) > limit || strings.Contains(l, "\n") || strings.HasPrefix(l, "\x00") {
				t.Fatalf("line %q", l)
			}
			kept += len(l)
		}
		if kept > len(in) || kept+bytes.Count(in, []byte("\n"))+bytes.Count(in, []byte("\r"))+bytes.Count(in, []byte{0}) < len(in) && !bytes.Contains(in, bytes.Repeat([]byte("x"), limit)) && utf8.Valid(in) && cuts == 0 && len(in) <= limit {
			t.Fatalf("%d bytes of %q are in %q and cut %d", kept, in, lines, cuts)
		}
	})
}

// A line causes no allocation from buffer to handle.
func TestNoAllocation(t *testing.T) {
	s := newSplitter(maxLine)
	in := []byte(strings.Repeat("Jan  2 03:04:05 node kernel: [12345.678901] some text of the usual length\n", 100))
	if n := testing.AllocsPerRun(100, func() {
		s.filled(copy(s.room(), in))
		for {
			if _, _, p := s.next(false); p == none {
				return
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLines(b *testing.B) {
	line := []byte("Jan  2 03:04:05 node kernel: [12345.678901] Memory cgroup out of memory: Killed process 30451 (stress)\n")
	in := bytes.Repeat(line, 600)
	for _, bench := range []struct {
		name   string
		format Format
	}{
		{"plain", Format{}},
		{"npd-kernel", Format{Timestamp: "^.{15}", Message: `kernel: \[.*\] (.*)`, TimestampFormat: "Jan _2 15:04:05"}},
		{"timestamp", Format{Timestamp: "^.{15}", TimestampFormat: "Jan _2 15:04:05"}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			d, err := NewParser(bench.format, nil)
			if err != nil {
				b.Fatal(err)
			}
			s := newSplitter(maxLine)
			now := time.Now()
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				s.filled(copy(s.room(), in))
				for {
					l, _, p := s.next(false)
					if p == none {
						break
					}
					if _, _, v := d.decode(l, now); v != take {
						b.Fatalf("%q: %v", l, v)
					}
					n++
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/line")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func TestIsRotated(t *testing.T) {
	for name, want := range map[string]bool{
		"kern.log.1": true, "kern.log-20260102": true, "kern.log.20260102-030405": true, "kern.log.2026-01-02T03:04:05Z": true,
		"kern-20260102.log": true, "kern.1.log": true, "kern_1.log": true,
		"kern.log": false, "kern.log.gz": false, "kern.log.1.gz": false, "kern.log.": false, "kern.log.err": false,
		"kern.log1": false, "kernel.log": false, "kern.log.lock": false, "kern.log.1.bak": false, "kern-.log": false,
		"kern.log.1~": false, "kern-a1.log": false, "other.log.1": false,
	} {
		if got := isRotated(name, "kern.log"); got != want {
			t.Errorf("isRotated(%q) = %v", name, got)
		}
	}
	for name, want := range map[string]bool{"messages-20260102": true, "messages.1": true, "messages": false, "messages2": false} {
		if got := isRotated(name, "messages"); got != want {
			t.Errorf("isRotated(%q) = %v", name, got)
		}
	}
	if !isRotated("0.log.20260102-030405", "0.log") || isRotated("1.log", "0.log") {
		t.Error("a container's log")
	}
	names := []string{"a.1", "a.10", "a.2", "b-20260102", "b-20260101", "b-20260102-1"}
	slices.SortFunc(names[:3], compareNames)
	slices.SortFunc(names[3:], compareNames)
	if got := fmt.Sprint(names); got != "[a.10 a.2 a.1 b-20260101 b-20260102 b-20260102-1]" {
		t.Errorf("sorted %v", got)
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	d, err := NewParser(Format{Timestamp: "^.{15}", Message: `kernel: \[.*\] (.*)`, TimestampFormat: "Jan _2 15:04:05"}, []string{"skip"})
	if err != nil {
		t.Fatal(err)
	}
	now, line := time.Now(), []byte("Jan  2 03:04:05 node kernel: [12345.678901] some text")
	if n := testing.AllocsPerRun(100, func() {
		if _, _, v := d.decode(line, now); v != take {
			t.Fatal(v)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
