package file

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestNewLinesOnly(t *testing.T) {
	log := newLog(t, filepath.Join(t.TempDir(), "kern.log"))
	log.write("old\nolder half of a")
	c := start(t, Config{Path: log.path}).up()
	log.write(" line\nnew\r\n")
	c.want("older half of a line", "new")
	log.write("newer\n\n")
	c.want("older half of a line", "new", "newer", "")
	l := c.lines[1]
	if l.Origin != log.path || l.Seq != c.lines[0].Seq+1 || time.Since(l.Time) > patience || l.Time.After(time.Now()) || l.Priority != "" {
		t.Errorf("line %+v", l)
	}
}

func TestRotationByRename(t *testing.T) {
	log := newLog(t, filepath.Join(t.TempDir(), "kern.log"))
	c := start(t, Config{Path: log.path}).up()
	log.write("1\n2\n")
	c.want("1", "2")
	log.rename("kern.log.1")
	// logrotate creates the new file; the writer is notified later and uses the old one until
	// then.
	log.put("kern.log", "")
	log.write("3\n")
	c.want("1", "2", "3")
	log.write("4 has no line end")
	log.reopen()
	log.write("5\n")
	c.want("1", "2", "3", "4 has no line end", "5")
	// The next rotation: the last lines were not read when the new file appears.
	log.write("6\n")
	log.rename("kern.log.2")
	log.write("7\n")
	log.reopen()
	log.write("8\n")
	c.want("1", "2", "3", "4 has no line end", "5", "6", "7", "8")
}

// Several rotations between two checks: the files in between are read in turn.
func TestRotationsWhileBusy(t *testing.T) {
	dir := t.TempDir()
	log := newLog(t, filepath.Join(dir, "kern.log"))
	log.put("kern.log.9", "from long ago\n")
	c := start(t, Config{Path: log.path}).up()
	log.write("1\n")
	c.want("1")
	c.mu.Lock() // its next item blocks
	log.write("2\n")
	for i := range 3 {
		log.rename(fmt.Sprintf("kern.log-2026010%d", i))
		log.reopen()
		log.write(fmt.Sprintf("in %d\n", i))
	}
	c.mu.Unlock()
	c.want("1", "2", "in 0", "in 1", "in 2")
}

func TestCopyTruncate(t *testing.T) {
	log := newLog(t, filepath.Join(t.TempDir(), "app.log"))
	c := start(t, Config{Path: log.path}).up()
	log.write("1\n2\n3 half")
	c.want("1", "2")
	// What was written before the copy was made is read there.
	c.mu.Lock()
	log.write(" of a line\n4\n")
	log.copyTruncate("app.log.1")
	c.mu.Unlock()
	c.want("1", "2", "3 half of a line", "4")
	log.write("5\n")
	c.want("1", "2", "3 half of a line", "4", "5")
	// Truncated, and then longer than what was read.
	c.mu.Lock()
	log.write("6\n")
	log.copyTruncate("app.log.2")
	log.write(strings.Repeat("a longer line than all of it\n", 2))
	c.mu.Unlock()
	const long = "a longer line than all of it"
	c.want("1", "2", "3 half of a line", "4", "5", "6", long, long)
}

func TestTruncationWithoutACopy(t *testing.T) {
	log := newLog(t, filepath.Join(t.TempDir(), "app.log"))
	c := start(t, Config{Path: log.path}).up()
	log.write("1\n2 half")
	c.want("1")
	if err := os.Truncate(log.path, 0); err != nil {
		t.Fatal(err)
	}
	c.want("1", "2 half", "-truncated:0")
	log.write("3\n")
	c.want("1", "2 half", "-truncated:0", "3")
}

// A writer that does not append continues at its old offset: the file begins with a hole.
func TestHoleAfterTruncation(t *testing.T) {
	log := newLog(t, filepath.Join(t.TempDir(), "app.log"))
	writer, err := os.OpenFile(log.path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	c := start(t, Config{Path: log.path}, func(r *Reader) { r.maxLine = 100 }).up()
	if _, err := writer.WriteString(strings.Repeat("x", 50) + "\n" + strings.Repeat("y", 99) + "\n"); err != nil {
		t.Fatal(err)
	}
	want := []string{strings.Repeat("x", 50), strings.Repeat("y", 99)}
	c.want(want...)
	c.mu.Lock()
	log.copyTruncate("app.log.1")
	if _, err := writer.Seek(1<<20, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.WriteString("after the hole\n"); err != nil {
		t.Fatal(err)
	}
	c.mu.Unlock()
	c.want(append(want, "after the hole")...)
}

func TestDeletedAndMadeAnew(t *testing.T) {
	log := newLog(t, filepath.Join(t.TempDir(), "app.log"))
	c := start(t, Config{Path: log.path}).up()
	log.write("1\n")
	c.want("1")
	log.remove("app.log")
	log.write("2, to a file without a name\n")
	c.want("1", "2, to a file without a name")
	log.reopen()
	log.write("3\n")
	c.want("1", "2, to a file without a name", "3")
}

// A deleted file is closed, so that its blocks are freed.
func TestDeletedFileIsLetGo(t *testing.T) {
	log := newLog(t, filepath.Join(t.TempDir(), "app.log"))
	c := start(t, Config{Path: log.path}, func(r *Reader) { r.pollEvery, r.goneFor = 5*time.Millisecond, 20*time.Millisecond })
	c.until("status", func() bool { return len(c.status) > 0 })
	held := func() bool {
		for _, fd := range openPaths(t) {
			if strings.HasPrefix(fd, log.path) {
				return true
			}
		}
		return false
	}
	log.write("1\n")
	c.want("1")
	log.f.Close()
	if !held() {
		t.Error("the file is not open")
	}
	log.remove("app.log")
	c.until("status", func() bool { return len(c.status) > 1 })
	testenv.Until(t, "the file is closed", patience, func() bool { return !held() })
	log.reopen()
	log.write("2\n")
	c.want("1", "2")
}

// openPaths returns the paths of this process's descriptors.
func openPaths(t *testing.T) (paths []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			paths = append(paths, target)
		}
	}
	return paths
}

func TestFileThatDoesNotExistYet(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "app.log")
	c := start(t, Config{Path: path})
	c.until("a status", func() bool { return len(c.status) == 1 && strings.Contains(c.status[0], "no such file") })
	log := newLog(t, path)
	log.write("all of it is new\n")
	c.want("all of it is new")
	c.up()
}

func TestFolderThatDoesNotExistYet(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	c := start(t, Config{Path: filepath.Join(dir, "app.log")}, func(r *Reader) { r.pollEvery = 5 * time.Millisecond })
	c.until("a status", func() bool { return len(c.status) == 1 })
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	log := newLog(t, filepath.Join(dir, "app.log"))
	log.write("1\n")
	c.want("1")
	c.stop()
}

// Where inotify reports nothing, as on a network file system, polling detects changes.
func TestWithoutInotify(t *testing.T) {
	log := newLog(t, filepath.Join(t.TempDir(), "app.log"))
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	w := &watch{path: log.path}
	if w.follow([]string{log.path}) || w.events != nil || w.errors != nil {
		t.Error("a watch without inotify watches")
	}
	w.again()
	w.close()
	c := start(t, Config{Path: log.path}, func(r *Reader) { r.pollEvery = 5 * time.Millisecond }).up()
	log.write("1\n")
	log.rename("app.log.1")
	log.reopen()
	log.write("2\n")
	c.want("1", "2")
}

// The whole path of a line: from the file to handle.
func BenchmarkReader(b *testing.B) {
	const lines = 100_000
	path := filepath.Join(b.TempDir(), "app.log")
	line := "Jan  2 03:04:05 node kernel: [12345.678901] Memory cgroup out of memory: Killed process 30451 (stress)\n"
	if err := os.WriteFile(path, []byte(strings.Repeat(line, lines)), 0o600); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r, err := New(Config{Path: path, Position: position{Fresh: true}.text()})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		n := 0
		if err := r.Run(ctx, func(logs.Item) error {
			if n++; n == lines {
				cancel()
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/lines, "ns/line")
	b.ReportMetric(0, "ns/op")
}

// TestFileThatHangs checks that a reader reports a file whose disk does not answer, and reads on when
// it does.
func TestFileThatHangs(t *testing.T) {
	dir, links := t.TempDir(), t.TempDir()
	l, path := newLog(t, filepath.Join(dir, "log")), filepath.Join(links, "log")
	if err := os.Symlink(l.path, path); err != nil { // so that a second folder is watched
		t.Fatal(err)
	}
	c := start(t, Config{Path: path}, func(r *Reader) { r.hangsAfter = 20 * time.Millisecond }).up()
	l.write("before\n")
	c.want("before")
	next := newLog(t, filepath.Join(dir, "next"))
	disk := disklab.HangFiles(t, next.path)
	next.write("meanwhile\n")
	next.rename("log")
	disk.Wait()
	hangs := "read " + path + ": " + errHangs.Error()
	c.until("report that it hangs", func() bool { return c.status[len(c.status)-1] == hangs })
	disk.Release()
	c.want("before", "meanwhile")
	c.until("report that it is read again", func() bool { return c.status[len(c.status)-1] == "up" })
}
