package file

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// kubelet links /var/log/containers/X.log to /var/log/pods/P/C/0.log, which may be a link itself.
// Runtimes rotate the file, and a restarted container gets another one.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"containers", "pods", "data"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, name string) {
		t.Helper()
		tmp := filepath.Join(dir, "link")
		if err := os.Symlink(target, tmp); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	first := newLog(t, filepath.Join(dir, "data", "0.log"))
	first.put("1.log.20250101-000000", "of a container long ago\n")
	link("../data/0.log", "pods/0.log")
	link("../pods/0.log", "containers/pod.log")
	c := start(t, Config{Path: filepath.Join(dir, "containers", "pod.log")}).up()
	first.write("1\n")
	c.want("1")
	first.rename("0.log.20260102-030405")
	first.write("2\n")
	first.reopen()
	first.write("3\n")
	c.want("1", "2", "3")
	// The container is restarted; its last line comes late.
	second := newLog(t, filepath.Join(dir, "data", "1.log"))
	second.write("4\n")
	first.write("3.5\n")
	link("../data/1.log", "containers/pod.log")
	c.want("1", "2", "3", "3.5", "4")
	second.write("5\n")
	c.want("1", "2", "3", "3.5", "4", "5")
	if got := c.lines[3].Origin; got != filepath.Join(dir, "containers", "pod.log") {
		t.Errorf("origin %q", got)
	}
}

// The host's file system is mounted in a folder: absolute links are relative to it.
func TestRoot(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{"var/log/pods", "var/log/containers"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	log := newLog(t, filepath.Join(root, "var/log/pods/0.log"))
	if err := os.Symlink("/var/log/pods/0.log", filepath.Join(root, "var/log/containers/pod.log")); err != nil {
		t.Fatal(err)
	}
	c := start(t, Config{Root: root, Path: "/var/log/containers/pod.log"}).up()
	log.write("1\n")
	c.want("1")
	log.rename("0.log.20260102-030405")
	log.reopen()
	log.write("2\n")
	c.want("1", "2")
	at := c.stop()
	log.write("3\n")
	log.rename("0.log.20260102-040506")
	log.reopen()
	log.write("4\n")
	start(t, Config{Root: root, Path: "/var/log/containers/pod.log", Position: at}).want("3", "4")
}

func TestWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, dir, "/dev/null", "/dev/kmsg"} {
		c := start(t, Config{Path: path})
		c.until("a status", func() bool { return len(c.status) == 1 && strings.Contains(c.status[0], "not a regular file") })
		if c.stop() != "" {
			t.Errorf("%s: a position %q", path, c.r.Position())
		}
	}
}
