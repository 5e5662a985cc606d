package file

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestDamaged(t *testing.T) {
	long, lines := logLines(0, 2000, 60)
	whole := gzipOf(t, long)
	flipped := []byte(whole)
	flipped[len(flipped)/2] ^= 0xff
	sum := []byte(whole)
	sum[len(sum)-5] ^= 0xff
	for _, tt := range []struct {
		name, content string
		complete      bool // all lines are there nevertheless
	}{
		{"no gzip", long, false},
		{"cut off", whole[:len(whole)/2], false},
		{"only a header", whole[:10], false},
		{"bytes changed", string(flipped), false},
		{"another checksum", string(sum), true},
		{"more behind it", whole + "something", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLog(t, filepath.Join(t.TempDir(), "app.log"))
			l.put("app.log.1.gz", tt.content)
			l.earlier("app.log.1.gz")
			l.write("end\n")
			c := start(t, Config{Path: l.path, Position: position{Fresh: true}.text()}, func(r *Reader) {
				r.pollEvery, r.goneFor = 5*time.Millisecond, 20*time.Millisecond
			})
			c.until("the end", func() bool { return len(c.items) > 0 && c.items[len(c.items)-1] == "end" })
			c.stop()
			n := len(c.items) - 2
			sure := min(max(n, 0), 500) // beyond that, changed bytes may be changed lines
			if n < 0 || c.items[n] != "-rotated:0" || !slices.Equal(c.items[:sure], lines[:sure]) || tt.complete != (n == len(lines)) {
				t.Errorf("%d lines, then %q", n, c.items[max(0, n):])
			}
			// It is reported only once.
			again := start(t, Config{Path: l.path, Position: c.r.Position()}).up()
			l.write("more\n")
			again.want("more")
			again.stop()
			once, err := New(Config{Path: l.path, Position: position{Fresh: true}.text()})
			if err != nil {
				t.Fatal(err)
			}
			all := &running{t: t, r: once, news: make(chan struct{}, 1)}
			if err := once.Once(t.Context(), all.handle); err != nil || !slices.Equal(all.items, append(c.items, "more")) {
				t.Errorf("at once: %v, %d items", err, len(all.items))
			}
		})
	}
}

func TestHalfWritten(t *testing.T) {
	long, lines := logLines(0, 2000, 60)
	whole := gzipOf(t, long)
	for _, at := range []int{5, 10, 500, len(whole) / 2, len(whole) - 1} {
		l := newLog(t, filepath.Join(t.TempDir(), "app.log"))
		l.put("app.log.1.gz", whole[:at])
		l.earlier("app.log.1.gz")
		l.write("end\n")
		c := start(t, Config{Path: l.path, Position: position{Fresh: true}.text()})
		c.untilAt(`"ino"`)
		f, err := os.OpenFile(filepath.Join(filepath.Dir(l.path), "app.log.1.gz"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(whole[at:]); err != nil {
			t.Fatal(err)
		}
		f.Close()
		c.want(append(slices.Clone(lines), "end")...)
		c.stop()
	}
}

func TestPacked(t *testing.T) {
	testenv.OnlyInTestAll(t)
	text := strings.Repeat("a line that is repeated\n", 1<<20)
	path := filepath.Join(t.TempDir(), "a.gz")
	if err := os.WriteFile(path, []byte(gzipOf(t, text)+gzipOf(t, "and a second part\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	read := func(p *packed, off int64) (string, error) {
		var got strings.Builder
		b := make([]byte, chunk)
		for {
			n, err := p.readAt(b, off+int64(got.Len()))
			got.Write(b[:n])
			if errors.Is(err, io.EOF) {
				return got.String(), nil
			}
			if err != nil {
				return got.String(), err
			}
		}
	}
	p, all := newPacked(f, gzipped), text+"and a second part\n"
	for _, off := range []int{len(all) - 30, 0, 7, len(all), skipStep + 1} {
		if got, err := read(p, int64(off)); err != nil || got != all[off:] {
			t.Errorf("from %d: %d bytes, %v", off, len(got), err)
		}
	}
	if _, err := read(p, int64(len(all)+1)); !errors.Is(err, errDamaged) {
		t.Errorf("behind the end: %v", err)
	}
	p = newPacked(f, gzipped)
	p.limit = 1 << 20
	if got, err := read(p, 100); !errors.Is(err, errDamaged) || got != all[100:p.limit] {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	p = newPacked(f, foreign)
	if _, err := p.head(); !errors.Is(err, errDamaged) {
		t.Errorf("another compression: %v", err)
	}
}

func FuzzPacked(f *testing.F) {
	f.Add([]byte("\x1f\x8b\x08\x00\x00\xe1\x0b\x5e\x00\x03\xcbH\xcd\xc9\xc9\xe7\x02\x00 0:6\x06\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "app.log.1.gz")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := New(Config{Path: strings.TrimSuffix(path, ".1.gz"), Position: position{Fresh: true}.text()})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Once(t.Context(), func(logs.Item) error { return nil }); err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("Once = %v", err)
		}
	})
}
