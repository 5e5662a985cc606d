package logsource

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/collector/logs/journald"
	"github.com/kernosis/kernosis/collector/statefile"
)

// killed simulates a kill -9: it returns a copy of the state on disk; sources that still run
// continue without effect on it.
func killed(t *testing.T, state string) (copied string) {
	t.Helper()
	copied = t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(state)); err != nil {
		t.Fatal(err)
	}
	return copied
}

// After any kind of restart, nothing is missed, and events that are reported again have the same
// numbers.
func TestRestart(t *testing.T) {
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprintf("kill=%v", kill), func(t *testing.T) {
			f := newFile(t, "kern.log")
			set := patterns(t, `oops \d+`, `begin\nend`)
			state := t.TempDir()
			rec := newRecorder()
			next := 0
			for range 5 {
				n := len(rec.all())
				r := run(t, open(t, set, Options{StateDir: state}, f.config("kern")), rec)
				rec.until(t, "start", func() bool {
					return len(rec.all()) > n && strings.Contains(strings.Join(rec.reported()[n:], "|"), "+log/kern")
				})
				for range 100 {
					f.add(fmt.Sprintf("oops %d\nquiet\n", next))
					next++
				}
				f.add("begin\n")
				rec.until(t, "lines", rec.has(fmt.Sprintf("oops %d", next-1)))
				rec.until(t, "line behind", func() bool { return r.Stats()[0].Lines > 200 })
				if kill {
					state = killed(t, state)
				}
				r.stop()
				f.add("end\n")
			}
			r := run(t, open(t, set, Options{StateDir: state}, f.config("kern")), rec)
			f.add("oops 999\n")
			rec.until(t, "last line", rec.has("oops 999"))
			r.stop()
			count, numbers := map[string]int{}, map[string]uint64{}
			spans := map[uint64]bool{}
			for _, ev := range rec.all() {
				if ev.Log == nil {
					continue
				}
				d := ev.Log
				if d.Text == "begin\nend" {
					spans[d.Seq] = true
					continue
				}
				count[d.Text]++
				if n := numbers[d.Text]; n != 0 && n != d.Seq {
					t.Errorf("%s has number %d and %d", d.Text, n, d.Seq)
				}
				numbers[d.Text] = d.Seq
			}
			for i := range next {
				n := count[fmt.Sprint("oops ", i)]
				if n == 0 || n > 1 && !kill {
					t.Errorf("oops %d was reported %d times", i, n)
				}
			}
			if len(spans) != 5 {
				t.Errorf("%d of the 5 pairs of lines around a restart were seen", len(spans))
			}
		})
	}
}

func TestBadPositionFile(t *testing.T) {
	for name, content := range map[string]string{
		"no JSON": "{", "another version": `{"version":99}`,
		"not the reader's": `{"version":1,"plugin":"file","path":"PATH","position":"nonsense"}`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFile(t, "kern.log")
			state := t.TempDir()
			content = strings.ReplaceAll(content, "PATH", f.path)
			if err := os.WriteFile(filepath.Join(state, "kern.json"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			r := run(t, open(t, patterns(t, "oops"), Options{StateDir: state}, f.config("kern")), newRecorder())
			r.rec.until(t, "loss", r.rec.has("lost log/kern 0 bad-position"))
			r.rec.until(t, "start", r.rec.has("+log/kern"))
			f.add("oops\n")
			r.rec.until(t, "line", r.rec.has("oops"))
			r.stop()
			_, err := os.Stat(filepath.Join(state, "kern.json.unread"))
			if aside := err == nil; aside != (name != "not the reader's") {
				t.Errorf("it is set aside: %v", aside)
			}
		})
	}
}

// A position that an earlier version has saved, after the first two lines.
func TestPositionOfAnEarlierVersion(t *testing.T) {
	f := newFile(t, "app.log")
	f.add("begin\nbroken 1\nbroken 2\n")
	text, err := os.ReadFile("testdata/earlier.json")
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	text = bytes.ReplaceAll(text, []byte("/var/log/app.log"), []byte(f.path))
	text = bytes.Replace(text, []byte("{"), []byte(`{"later":{"is":[1]},`), 1) // and one with additions of a newer version
	if err := os.WriteFile(filepath.Join(state, "app.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, open(t, patterns(t, "broken [0-9]"), Options{StateDir: state}, f.config("app")), newRecorder())
	f.add("broken 3\n")
	r.rec.until(t, "line", r.rec.has("broken 3"))
	r.stop()
	reported := strings.Join(r.rec.reported(), "\n")
	if strings.Contains(reported, "lost") || strings.Contains(reported, "broken 1") || !strings.Contains(reported, "broken 2") {
		t.Errorf("told:\n%s", reported)
	}
}

// Another log under the same name is read from its beginning.
func TestPositionOfAnotherLog(t *testing.T) {
	state := t.TempDir()
	a, b := newFile(t, "a.log"), newFile(t, "b.log")
	r := run(t, open(t, patterns(t, "oops"), Options{StateDir: state}, a.config("log")), newRecorder())
	r.rec.until(t, "start", r.rec.has("+log/log"))
	a.add("oops a\n")
	r.rec.until(t, "line", r.rec.has("oops a"))
	r.stop()
	b.add("oops of before\n")
	r = run(t, open(t, patterns(t, "oops"), Options{StateDir: state}, b.config("log")), newRecorder())
	r.rec.until(t, "start", r.rec.has("+log/log"))
	b.add("oops b\n")
	r.rec.until(t, "line", r.rec.has("oops b"))
	r.stop()
	for _, text := range r.rec.reported() {
		if strings.HasPrefix(text, "lost") || text == "oops of before" {
			t.Errorf("reported: %s", text)
		}
	}
}

// A journal keeps its position when journald moves it from memory to disk.
func TestPositionOfAJournalThatMoves(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		keeps    bool
	}{
		{"", journald.Folder, true},
		{journald.Folder, "", true},
		{"/own", journald.Folder, false},
		{journald.Folder, "/own", false},
	} {
		state := t.TempDir()
		before := positionFile{Version: positionVersion, Plugin: Journald, Path: tt.from, Position: "1 s=1;i=1;b=1;m=1;t=1;x=1"}
		if err := (statefile.File{Path: filepath.Join(state, "journal.json")}).Save(before); err != nil {
			t.Fatal(err)
		}
		sources := open(t, patterns(t, "oops"), Options{StateDir: state}, Config{Name: "journal", Plugin: Journald, Path: tt.to})
		if got := sources.logs[0].load(); (got == before.Position) != tt.keeps {
			t.Errorf("from %q to %q: position %q", tt.from, tt.to, got)
		}
	}
}

// Lines of an earlier boot and of this one are not neighbours.
func TestWindowsOfAnEarlierBoot(t *testing.T) {
	for _, same := range []bool{true, false} {
		f := newFile(t, "kern.log")
		state := t.TempDir()
		c := f.config("kern")
		set := patterns(t, `begin\nend`, "last")
		r := run(t, open(t, set, Options{StateDir: state}, c), newRecorder())
		r.rec.until(t, "start", r.rec.has("+log/kern"))
		f.add("begin\n")
		r.rec.until(t, "line", func() bool { return r.Stats()[0].Lines == 1 })
		r.stop()
		path := filepath.Join(state, "kern.json")
		raw, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(raw), hostfs.BootID()) {
			t.Fatalf("%s (%v)", raw, err)
		}
		if !same {
			if err := os.WriteFile(path, []byte(strings.Replace(string(raw), hostfs.BootID(), "another", 1)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f.add("end\nlast\n")
		r = run(t, open(t, set, Options{StateDir: state}, c), newRecorder())
		r.rec.until(t, "last line", r.rec.has("last"))
		r.stop()
		if got := r.rec.has("begin\nend")(); got != same {
			t.Errorf("same boot %v: joined %v", same, got)
		}
	}
}

// A position that can't be saved is counted, and reading continues.
func TestUnwritableState(t *testing.T) {
	f := newFile(t, "kern.log")
	state := filepath.Join(t.TempDir(), "gone")
	r := run(t, open(t, patterns(t, "oops"), Options{StateDir: state}, f.config("kern")), newRecorder())
	r.rec.until(t, "start", r.rec.has("+log/kern"))
	f.add("oops\n")
	r.rec.until(t, "line", r.rec.has("oops"))
	if s := r.Stats()[0]; s.SaveErrors == 0 {
		t.Errorf("stats %+v", s)
	}
}

// While the disk with the positions hangs, lines are still reported, and the failures are counted.
func TestStateThatHangs(t *testing.T) {
	f := newFile(t, "kern.log")
	sources := open(t, patterns(t, "oops"), Options{StateDir: t.TempDir()}, f.config("kern"))
	hang := make(chan struct{})
	defer close(hang)
	err := bounded.Err(&sources.logs[0].saving, time.Millisecond, func() error { <-hang; return nil })
	if !errors.Is(err, bounded.ErrLate) {
		t.Fatal(err)
	}
	r := run(t, sources, newRecorder())
	r.rec.until(t, "start", r.rec.has("+log/kern"))
	for n := range 3 * saveEvents {
		f.add("oops " + strconv.Itoa(n) + "\n")
	}
	r.rec.until(t, "last line", r.rec.has("oops "+strconv.Itoa(3*saveEvents-1)))
	if s := r.Stats()[0]; s.SaveErrors == 0 || s.Matched != 3*saveEvents {
		t.Errorf("stats %+v", s)
	}
}

// This machine's kernel log is read from the boot, and by another reader that starts at the
// position, not again.
func TestKernelLog(t *testing.T) {
	if f, err := os.Open("/dev/kmsg"); err != nil {
		t.Skipf("the kernel's log can't be read here: %v", err)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	c := Config{Name: "kmsg", Plugin: KMsg, Lookback: 1000 * time.Hour}
	r := run(t, open(t, patterns(t, `.`), Options{StateDir: state}, c), newRecorder())
	r.rec.until(t, "start", r.rec.has("+log/kmsg"))
	r.rec.until(t, "lines", func() bool { return r.Stats()[0].Matched > 0 })
	r.stop()
	var last uint64
	for _, ev := range r.rec.all() {
		if ev.Log != nil {
			last = max(last, ev.Log.Seq)
		}
	}
	r = run(t, open(t, patterns(t, `.`), Options{StateDir: state}, c), newRecorder())
	r.rec.until(t, "start", r.rec.has("+log/kmsg"))
	r.stop()
	for _, ev := range r.rec.all() {
		if ev.Log != nil && ev.Log.Seq <= last {
			t.Errorf("reported again: %+v", ev.Log)
		}
	}
}

// In a container, the kernel's log is the one below the host's root, or the container's own: both
// are of the same kernel.
func TestKernelLogOfTheHost(t *testing.T) {
	root := t.TempDir()
	if got := KMsgPath(root, ""); got != "/dev/kmsg" {
		t.Errorf("without one below the root: %s", got)
	}
	if err := os.MkdirAll(filepath.Join(root, "dev"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "dev/kmsg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := KMsgPath(root, ""); got != filepath.Join(root, "dev/kmsg") {
		t.Errorf("with one below the root: %s", got)
	}
}

// No position is saved before the events of earlier lines are settled, and with or without more
// lines all events are settled within two seconds.
func TestEventsAreSettledBeforeTheirPositionIsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, patterns(t, "bin"), Options{StateDir: t.TempDir()}, Config{Name: "k", Plugin: KMsg})
		l := s.logs[0]
		const lines = 3*saveEvents + 10
		var read, looks atomic.Int64
		rec := newRecorder()
		l.open = func(*source, logs.Position, func(error)) (reader, error) {
			return &script{
				pos: func() logs.Position { return logs.Position(strconv.FormatInt(read.Load(), 10)) },
				run: func(ctx context.Context, handle func(logs.Item) error) error {
					for range lines {
						if err := handle(line("bin")); err != nil {
							return err
						}
						read.Add(1)
					}
					<-ctx.Done()
					return nil
				},
			}, nil
		}
		check := func() {
			raw, err := os.ReadFile(l.positionPath())
			if errors.Is(err, os.ErrNotExist) {
				return
			}
			var f positionFile
			if err != nil || json.Unmarshal(raw, &f) != nil {
				t.Fatalf("%v: %s", err, raw)
			}
			if n, err := strconv.Atoi(string(f.Position)); err != nil || n > rec.settledLines() {
				t.Errorf("position %q is saved, and %d lines are settled", f.Position, rec.settledLines())
			}
			looks.Add(1)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- s.Run(ctx, func(ev *event.Event) { check(); rec.emit(ev) }, func() { rec.settle(); check() })
		}()
		time.Sleep(2*time.Second + l.first)
		synctest.Wait()
		if n := len(rec.lines()); n != lines || rec.settledLines() != lines || looks.Load() < lines/2 {
			t.Errorf("%d lines, %d settled; the file was looked at %d times", n, rec.settledLines(), looks.Load())
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func FuzzPositionFile(f *testing.F) {
	f.Add([]byte(`{"version":1,"plugin":"kmsg","position":"b 7","windows":[{"key":"a","lines":"Ymlu\n"},{"lines":""}]}`))
	f.Add([]byte(`{"version":1,"plugin":"kmsg","windows":[{"lines":null}]}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		s := open(t, patterns(t, "a\nb"), Options{StateDir: t.TempDir()}, Config{Name: "k", Plugin: KMsg})
		l := s.logs[0]
		l.emit = newRecorder().emit
		if err := os.WriteFile(l.positionPath(), content, 0o600); err != nil {
			t.Fatal(err)
		}
		position := l.load()
		if err := l.handle(line("b")); err != nil {
			t.Error(err)
		}
		l.reader = &script{pos: func() logs.Position { return position + "x" }}
		l.save()
		if again := open(t, patterns(t, "a\nb"), l.o, l.cfg).logs[0].load(); again != position+"x" {
			t.Errorf("saved %q, loaded %q", position+"x", again)
		}
	})
}
