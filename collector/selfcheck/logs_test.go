package selfcheck

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// looked returns the lacks of the checker's first log, or fails if the look does not end. release
// ends it then.
func looked(t *testing.T, c *Checker, release func()) []Lack {
	t.Helper()
	done := make(chan []Lack, 1)
	go func() { done <- c.Look() }()
	var all, lacks []Lack
	select {
	case all = <-done:
	case <-time.After(testenv.Within(10 * time.Second)):
		t.Error("the look does not end")
		release()
		all = <-done
	}
	for _, l := range all {
		if l.Part == "log/"+c.cfg.Logs[0].Name {
			lacks = append(lacks, l)
		}
	}
	return lacks
}

// A container may replace a log by a pipe that nobody writes.
func TestLogThatIsAPipe(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "app.log")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	c := New(Config{HostRoot: root, Logs: []Log{{"app", "file", "/app.log"}}})
	if lacks := looked(t, c, func() {
		if fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
			_ = unix.Close(fd)
		}
	}); len(lacks) > 0 || c.opens[0].Stats().Late > 0 {
		t.Errorf("%+v, %+v", lacks, c.opens[0].Stats())
	}
}

// A log on a disk or server that does not answer is not lacking: its source reports it.
func TestLogThatHangs(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "app.log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := New(Config{HostRoot: root, Logs: []Log{{"app", "file", "/app.log"}}})
	c.hangsAfter = 20 * time.Millisecond
	disk := disklab.HangFiles(t, path)
	for range 2 {
		if lacks := looked(t, c, disk.Release); len(lacks) > 0 {
			t.Errorf("%+v", lacks)
		}
	}
	if s := c.opens[0].Stats(); s.Late != 1 || s.Refused != 1 {
		t.Errorf("%+v", s)
	}
}

// An absolute link leads below the root.
func TestLogBehindALink(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"var", "srv/log"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/srv/log", filepath.Join(root, "var/log")); err != nil {
		t.Fatal(err)
	}
	c := New(Config{HostRoot: root, Logs: []Log{{"app", "file", "/var/log/app.log"}}})
	if lacks := looked(t, c, func() {}); len(lacks) > 0 {
		t.Errorf("%+v", lacks)
	}
}
