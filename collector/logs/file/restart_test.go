package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Between two runs a log changes in any way. The second run gets what was written in the meantime,
// and nothing older.
func TestRestart(t *testing.T) {
	for _, tt := range []struct {
		name      string
		meanwhile func(l *logFile)
		want      []string
	}{
		{"nothing", func(l *logFile) { l.write("3\n") }, []string{"3"}},
		{"more lines", func(l *logFile) { l.write("3\n4\n") }, []string{"3", "4"}},
		{"renamed", func(l *logFile) {
			l.write("3\n")
			l.rename("app.log.1")
			l.reopen()
			l.write("4\n")
		}, []string{"3", "4"}},
		{"renamed, not made anew yet", func(l *logFile) {
			l.write("3\n")
			l.rename("app.log.1")
		}, []string{"3"}},
		{"renamed three times", func(l *logFile) {
			for i := range 3 {
				l.write(fmt.Sprintf("%d\n", i+3))
				for n := i; n > 0; n-- {
					if err := os.Rename(filepath.Join(filepath.Dir(l.path), fmt.Sprintf("app.log.%d", n)), filepath.Join(filepath.Dir(l.path), fmt.Sprintf("app.log.%d", n+1))); err != nil {
						l.t.Fatal(err)
					}
				}
				l.later(l.path)
				l.rename("app.log.1")
				l.reopen()
			}
			l.write("6\n")
			l.later(l.path)
		}, []string{"3", "4", "5", "6"}},
		{"renamed three times, and the new file is empty", func(l *logFile) {
			for i := range 3 {
				l.write(fmt.Sprintf("%d\n", i+3))
				l.later(l.path)
				l.rename(fmt.Sprintf("app-%d.log", i))
				l.reopen()
			}
		}, []string{"3", "4", "5"}},
		{"copied and truncated", func(l *logFile) {
			l.write("3\n")
			l.copyTruncate("app.log.1")
			l.write("4\n")
			l.later(l.path)
		}, []string{"3", "4"}},
		{"truncated", func(l *logFile) {
			if err := os.Truncate(l.path, 0); err != nil {
				l.t.Fatal(err)
			}
			l.write("3\n")
		}, []string{"-rotated:0", "3"}},
		{"compressed", func(l *logFile) {
			l.rename("app.log.1")
			l.put("app.log.1.gz", "compressed")
			l.remove("app.log.1")
			l.reopen()
			l.write("4\n")
		}, []string{"-rotated:0", "4"}},
		{"another file with the same inode, perhaps", func(l *logFile) {
			l.f.Close()
			l.remove("app.log")
			l.put("app.log", "something else that is longer\n")
		}, []string{"-rotated:0", "something else that is longer"}},
		{"gone", func(l *logFile) { l.remove("app.log") }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLog(t, filepath.Join(t.TempDir(), "app.log"))
			l.put("app.log.7", "before everything\n")
			l.earlier("app.log.7")
			l.write("0\n")
			c := start(t, Config{Path: l.path}).up()
			l.write("1\n2\n")
			c.want("1", "2")
			at := c.stop()
			l.clock = time.Now()
			tt.meanwhile(l)
			// Twice from the same position: reading must not change anything.
			for range 2 {
				again := start(t, Config{Path: l.path, Position: at}, func(r *Reader) { r.pollEvery = 5 * time.Millisecond })
				again.want(tt.want...)
				next := again.stop()
				if len(tt.want) > 0 && next == at {
					t.Error("the position stays")
				}
				// And a third run has nothing to report.
				if tt.name == "gone" || tt.name == "renamed, not made anew yet" {
					continue
				}
				third := start(t, Config{Path: l.path, Position: next}).up()
				l.reopen()
				l.write("a last one\n")
				third.want("a last one")
				third.stop()
				l.truncateBy(len("a last one\n"))
			}
		})
	}
}

// later sets a file's time to one second after that of the last one.
func (l *logFile) later(path string) {
	l.t.Helper()
	l.clock = l.clock.Add(time.Second)
	if err := os.Chtimes(path, l.clock, l.clock); err != nil {
		l.t.Fatal(err)
	}
}

func (l *logFile) earlier(name string) {
	l.t.Helper()
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(filepath.Dir(l.path), name), old, old); err != nil {
		l.t.Fatal(err)
	}
}

// truncateBy removes the last n bytes that were written.
func (l *logFile) truncateBy(n int) {
	l.t.Helper()
	st, err := os.Stat(l.path)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := os.Truncate(l.path, st.Size()-int64(n)); err != nil {
		l.t.Fatal(err)
	}
}

// A file that did not exist when the reader stopped is new, even if it was rotated before the next
// reader starts.
func TestRestartWithoutAFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "app.log.9"), []byte("before everything\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t, Config{Path: filepath.Join(dir, "app.log")})
	c.until("a status", func() bool { return len(c.status) > 0 })
	at := c.stop()
	l := newLog(t, filepath.Join(dir, "app.log"))
	l.write("1\n")
	l.rename("app.log.1")
	l.reopen()
	l.write("2\n")
	start(t, Config{Path: l.path, Position: at}).want("1", "2")
}

// An item that handle refused is handed over again.
func TestHandleFails(t *testing.T) {
	l := newLog(t, filepath.Join(t.TempDir(), "app.log"))
	r, err := New(Config{Path: l.path})
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	done := make(chan error)
	go func() {
		done <- r.Run(t.Context(), func(item logs.Item) error {
			if string(item.Line.Text) == "2" {
				return full
			}
			return nil
		})
	}()
	testenv.Until(t, "a position", patience, func() bool { return r.Position() != "" })
	l.write("1\n2\n3\n")
	if err := <-done; err != full { //nolint:errorlint // it has to be the very error
		t.Errorf("Run = %v", err)
	}
	start(t, Config{Path: l.path, Position: r.Position()}).want("2", "3")
}

func TestBadPosition(t *testing.T) {
	l := newLog(t, filepath.Join(t.TempDir(), "app.log"))
	l.write("old\n")
	for _, bad := range []logs.Position{
		"x", "{}", "[]", "null", `{"ino":1,"offset":-1}`, `{"ino":1,"offset":1,"head":2}`, `{"ino":1,"offset":9999,"head":9999}`, `{"fresh":true,"ino":1,"offset":0}`,
	} {
		if p, ok := parsePosition(bad); ok {
			t.Errorf("parsePosition(%q) = %+v", bad, p)
		}
	}
	c := start(t, Config{Path: l.path, Position: "x"}).up()
	l.write("new\n")
	c.want("-bad-position:0", "new")
}

// A corrupted position is refused or harmless.
func FuzzPosition(f *testing.F) {
	f.Add(string(position{Dev: 1, Ino: 2, Offset: 3, Head: 3, Sum: "x", Cutting: true, Cut: 4}.text()))
	f.Add(string(position{Fresh: true, Known: []knownFile{{Ino: 1, Size: 2, Sum: "x", Time: 3}}}.text()))
	f.Add(`{"ino":1,"offset":0,"known":[{"ino":1,"size":-2},{"time":-1}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := parsePosition(logs.Position(text))
		if !ok {
			return
		}
		again, ok := parsePosition(p.text())
		if !ok || again.text() != p.text() {
			t.Errorf("%q is %+v, and %+v, %v", text, p, again, ok)
		}
	})
}

// A line has the same number each time it is read, and no other line has it: not in a copy, not
// after a rotation, not after a loss.
func TestNumbers(t *testing.T) {
	l := newLog(t, filepath.Join(t.TempDir(), "app.log"))
	c := start(t, Config{Path: l.path}).up()
	begin := c.r.Position()
	l.write("1\n2\n")
	c.want("1", "2")
	l.copyTruncate("app.log.1")
	l.earlier("app.log.1") // the two files' times are too close to determine their order
	l.write("3\n4\n")
	c.want("1", "2", "3", "4")
	l.rename("app.log.2")
	l.reopen()
	l.write("5\n")
	c.want("1", "2", "3", "4", "5")
	c.stop()
	for i, line := range c.lines[1:] {
		if line.Seq != c.lines[i].Seq+1 {
			t.Errorf("line %d has number %d behind %d", i+1, line.Seq, c.lines[i].Seq)
		}
	}
	again := start(t, Config{Path: l.path, Position: begin})
	again.want("1", "2", "3", "4", "5")
	end := again.stop()
	for i := range again.lines {
		if again.lines[i].Seq != c.lines[i].Seq {
			t.Errorf("line %d has number %d, and %d when it is read again", i, c.lines[i].Seq, again.lines[i].Seq)
		}
	}
	for _, name := range []string{"app.log", "app.log.1", "app.log.2"} {
		l.remove(name)
	}
	l.put("app.log", "6\n")
	lost := start(t, Config{Path: l.path, Position: end})
	lost.want("-rotated:0", "6")
	lost.stop()
	if lost.lines[0].Seq <= again.lines[4].Seq+1 {
		t.Errorf("number %d after a loss, %d before", lost.lines[0].Seq, again.lines[4].Seq)
	}
}
