package journald

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// helperDir is the environment variable that makes the test binary read this journal until it is
// killed.
const helperDir = "KERNOSIS_TEST_JOURNAL"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperDir); dir != "" {
		r, err := New(Config{Directory: dir, Lookback: 24 * time.Hour})
		if err == nil {
			err = r.Run(context.Background(), func(item logs.Item) error {
				_, err := fmt.Printf("%s\n", item.Line.Text)
				return err
			})
		}
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(testenv.CheckLeaks(m.Run))
}

// fake returns an option that replaces journalctl by a script, which gets the number of its run as
// N, and journalctl's arguments. The journal has a file.
func fake(t *testing.T, script string) func(*Reader) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "journalctl")
	text := "#!/bin/sh\nD=" + dir + "\nN=$(cat $D/n 2>/dev/null || echo 0); N=$((N+1)); echo $N >$D/n\n" + script
	testenv.WriteProgram(t, path, text)
	return func(r *Reader) {
		r.command = func(string) (string, error) { return path, nil }
		r.folders = []string{makeFile(t, filepath.Join(dir, "journal"))}
	}
}

// makeFile creates a folder with a journal's file, and returns the folder.
func makeFile(t *testing.T, folder string) string {
	t.Helper()
	machine := filepath.Join(folder, strings.Repeat("c", 32))
	if err := errors.Join(os.MkdirAll(machine, 0o755), os.WriteFile(filepath.Join(machine, "system.journal"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	return folder
}

// put writes entries to a file for a fake, and returns its path.
func put(t *testing.T, entries ...[]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "entries")
	if err := os.WriteFile(path, bytes.Join(entries, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func fakeEntry(n int) []byte {
	return exported("__CURSOR", fmt.Sprintf("s=1;i=%x;b=2;m=%x;t=%x;x=%x", n, n, n, n), "__REALTIME_TIMESTAMP", "1", "MESSAGE", strconv.Itoa(n))
}

// A journalctl that ends for any reason is restarted where it stopped.
func TestStartedAgain(t *testing.T) {
	half := fakeEntry(3)
	one, two := put(t, fakeEntry(1), fakeEntry(2), half[:len(half)/2]), put(t, fakeEntry(2), fakeEntry(3))
	c := start(t, Config{}, fake(t, `
case "$N" in
1) cat `+one+`; echo some noise >&2; echo "Failed to iterate through journal: Bad message" >&2; exit 1;;
2) kill -9 $$;;
3) cat `+two+`; exec sleep 1000;;
esac`))
	c.want("1", "2", "3")
	c.until("status up", func() bool { return len(c.status) > 2 })
	c.stop()
	if len(c.status) != 4 || c.status[0] != "up" || !strings.Contains(c.status[1], `"Failed to iterate through journal: Bad message"`) ||
		!strings.Contains(c.status[2], "signal: killed") || c.status[3] != "up" {
		t.Errorf("status %q", c.status)
	}
}

// journalctl does not notice a folder that is created while it runs, such as the one on disk: it is
// restarted where it stopped, which is no failure.
func TestTheJournalMoves(t *testing.T) {
	dir := t.TempDir()
	disk, memory := filepath.Join(dir, "var"), filepath.Join(dir, "run")
	makeFile(t, memory)
	one, two := put(t, fakeEntry(1)), put(t, fakeEntry(1), fakeEntry(2))
	c := start(t, Config{}, fake(t, `
case "$N" in
1) cat `+one+`; exec sleep 1000;;
*) cat `+two+`; exec sleep 1000;;
esac`), func(r *Reader) { r.folders, r.check = []string{disk, memory}, 10*time.Millisecond })
	c.until("status up", func() bool { return len(c.status) == 1 && len(c.items) == 1 })
	makeFile(t, disk)
	c.want("1", "2")
	c.stop()
	if !slices.Equal(c.status, []string{"up"}) {
		t.Errorf("status %q", c.status)
	}
}

// TestJournalOnADiskThatHangs checks that a journalctl which waits for its disk does not count as
// working.
func TestJournalOnADiskThatHangs(t *testing.T) {
	one, two := put(t, fakeEntry(1)), put(t, fakeEntry(2))
	disk := disklab.HangFiles(t, two)
	c := start(t, Config{}, fake(t, `
case "$N" in
1) cat `+one+`; exec cat `+two+`;;
*) exec sleep 1000;;
esac`), func(r *Reader) { r.check = 10 * time.Millisecond })
	c.want("1")
	c.until("report that it hangs", func() bool { return c.status[len(c.status)-1] == errHangs.Error() })
	disk.Release()
	c.want("1", "2")
	c.until("status up", func() bool { return c.status[len(c.status)-1] == "up" })
}

// journalctl does not report that there is no journal.
func TestNoJournal(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "journal")
	c := start(t, Config{}, fake(t, "exec sleep 1000"), func(r *Reader) { r.folders = []string{folder} })
	c.until("a status", func() bool { return len(c.status) == 1 })
	if c.status[0] != ErrNoFiles.Error()+" in "+folder {
		t.Errorf("status %q", c.status)
	}
	makeFile(t, folder)
	c.until("status up", func() bool { return len(c.status) == 2 && c.status[1] == "up" })
}

// Output that is not in the export format stops the child, is reported, and is not a line.
func TestGarbage(t *testing.T) {
	one, two := put(t, fakeEntry(1), []byte("-- no entries --\n\n")), put(t, fakeEntry(1), exported("MESSAGE", "no cursor"), fakeEntry(2))
	c := start(t, Config{}, fake(t, `
case "$N" in
1) cat `+one+`; exec yes;;
*) cat `+two+`; exec sleep 1000;;
esac`))
	c.want("1", "-malformed:1", "2")
	c.until("status up", func() bool { return len(c.status) == 3 })
	if !strings.Contains(c.status[1], ErrFormat.Error()) {
		t.Errorf("status %q", c.status)
	}
}

func TestArguments(t *testing.T) {
	out := filepath.Join(t.TempDir(), "args")
	c := start(t, Config{Directory: "/a folder", Filter: Filter{Identifiers: []string{"--vacuum-size=1"}}, Position: "1f " + someCursor},
		fake(t, `printf '%s\n' "$@" >`+out+`.new; env >>`+out+`.new; mv `+out+`.new `+out+`; exec sleep 1000`))
	var args []byte
	testenv.Until(t, "the arguments", patience, func() (ok bool) {
		args, _ = os.ReadFile(out)
		return args != nil
	})
	c.stop()
	for _, want := range []string{
		"--quiet", "--follow", "--no-tail", "--merge", "--output=export", "--directory=/a folder", "--cursor=" + someCursor, "SYSLOG_IDENTIFIER=--vacuum-size=1", "LC_ALL=C.UTF-8",
	} {
		if !strings.Contains(string(args), want+"\n") {
			t.Errorf("no %q in %s", want, args)
		}
	}
	if strings.Contains(string(args), "HOME=") {
		t.Errorf("the environment is handed on: %s", args)
	}
}

func TestNoJournalctl(t *testing.T) {
	root := t.TempDir()
	c := start(t, Config{Root: root})
	c.until("a status", func() bool { return len(c.status) == 1 })
	if !strings.Contains(c.status[0], ErrNoJournalctl.Error()) || !strings.Contains(c.status[0], root) {
		t.Errorf("status %q", c.status)
	}
	c.stop()
	if _, err := findCommand(root); !errors.Is(err, ErrNoJournalctl) {
		t.Error(err)
	}
}

// The real journalctl reports why it can't.
func TestDirectoryThatIsNotThere(t *testing.T) {
	j := newJournal(t)
	dir := filepath.Join(j.dir, "none")
	c := start(t, Config{Directory: dir})
	c.until("a status", func() bool { return len(c.status) == 1 })
	if !strings.Contains(c.status[0], "No such file or directory") {
		t.Errorf("status %q", c.status)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	j.dir = dir
	j.write("a.journal", j.entry("1"))
	c.want("1")
}

// children returns the journalctl processes that are children of a process.
func children(t *testing.T, parent int) (pids []int) {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		b, err := os.ReadFile(p)
		if err != nil {
			continue // it has ended
		}
		name, rest, _ := strings.Cut(string(b), ") ")
		if fields := strings.Fields(rest); strings.HasSuffix(name, "(journalctl") && fields[0] != "Z" && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestChildEndsWithTheContext(t *testing.T) {
	j := newJournal(t)
	j.write("a.journal", j.entry("1"))
	c := start(t, Config{Directory: j.dir})
	c.want("1")
	pids := children(t, os.Getpid())
	if len(pids) != 1 {
		t.Fatalf("children %v", pids)
	}
	if group, err := unix.Getpgid(pids[0]); err != nil || group != pids[0] {
		t.Errorf("the child's group is %d, %v", group, err)
	}
	// After it was killed, it is restarted and begins where it was.
	if err := unix.Kill(pids[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	j.write("a.journal", j.entry("2"))
	c.want("1", "2")
	c.stop()
	if pids := children(t, os.Getpid()); len(pids) > 0 {
		t.Errorf("children %v", pids)
	}
}

// When this process is killed, journalctl ends as well.
func TestChildDiesWithTheProcess(t *testing.T) {
	j := newJournal(t)
	j.write("a.journal", j.entry("1"))
	helper := exec.CommandContext(t.Context(), os.Args[0])
	helper.Env = append(os.Environ(), helperDir+"="+j.dir)
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 2)
	if _, err := out.Read(line); err != nil || string(line) != "1\n" {
		t.Errorf("the helper says %q, %v", line, err)
	}
	pids := children(t, helper.Process.Pid)
	if len(pids) != 1 {
		t.Errorf("the helper's children are %v", pids)
	}
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = helper.Wait()
	for _, pid := range pids {
		testenv.Until(t, fmt.Sprintf("the end of journalctl %d", pid), patience, func() bool {
			return unix.Kill(pid, 0) != nil || isZombie(pid)
		})
	}
}

func isZombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

// The host's journalctl and journal are below a root.
func TestRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("changing the root takes privilege")
	}
	j := newJournal(t)
	j.write("a.journal", j.entry("1"))
	root := t.TempDir()
	tool, err := exec.LookPath("journalctl")
	if err != nil {
		t.Fatal(err)
	}
	testenv.InstallProgram(t, root, tool, "/usr/bin/journalctl")
	folder := filepath.Join(root, "/var/log/journal")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(j.dir, "a.journal"), filepath.Join(folder, "a.journal")); err != nil {
		t.Fatal(err)
	}
	start(t, Config{Root: root, Directory: "/var/log/journal"}).want("1")
}

// The real journalctl follows the journal from memory to disk.
func TestTheRealJournalMoves(t *testing.T) {
	j := newJournal(t)
	root, machine := t.TempDir(), strings.Repeat("c", 32)
	in := func(folder string) {
		j.dir = filepath.Join(root, folder, machine)
		if err := os.MkdirAll(j.dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	in(memoryFolder)
	first := j.entry("1")
	j.write("system.journal", first)
	// Without chroot, because journalctl needs /proc to watch folders.
	c := start(t, Config{}, fake(t, `exec journalctl --root=`+root+` "$@"`), func(r *Reader) {
		r.fs, r.folders, r.check = hostfs.New(root), []string{Folder, memoryFolder}, 10*time.Millisecond
	})
	c.want("1")
	in(Folder)
	j.write("system.journal", first, j.entry("2"))
	if err := os.RemoveAll(filepath.Join(root, memoryFolder, machine)); err != nil {
		t.Fatal(err)
	}
	c.want("1", "2")
	j.write("system.journal", j.entry("3"))
	c.want("1", "2", "3")
	if !slices.Equal(c.status, []string{"up"}) {
		t.Errorf("status %q", c.status)
	}
}
