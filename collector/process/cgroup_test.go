package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// parent returns a control group for a test's groups.
func parent(t *testing.T) string {
	t.Helper()
	own, err := OwnCgroup()
	if err != nil {
		t.Skipf("no control group may be made here: %v", err)
	}
	dir := filepath.Join(own, "kernosis-process-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no control group may be made here: %v", err)
	}
	t.Cleanup(func() { testenv.Until(t, "end of the group", patience, func() bool { return os.Remove(dir) == nil }) })
	return dir
}

// TestControlGroupThatCannotBeEntered uses a folder that is not a control group.
func TestControlGroupThatCannotBeEntered(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var log bytes.Buffer
	g := &Group{of: &Groups{log: slog.New(slog.NewTextHandler(&log, nil))}, dir: dir.Name(), fd: int(dir.Fd())}
	for range 2 {
		p := Program{Path: testenv.Script(t, "echo ran"), Timeout: patience, Group: g}
		if o := p.Run(t.Context()); o.Err != nil || string(o.Stdout) != "ran\n" {
			t.Errorf("%v %q", o.Err, o.Stdout)
		}
	}
	if n := strings.Count(log.String(), "programs run without a control group"); n != 1 || !strings.Contains(log.String(), "bad file descriptor") {
		t.Errorf("log: %s", log.String())
	}
	p := Program{Path: testenv.Script(t, "echo ran"), Timeout: patience, Strict: true, Group: &Group{of: g.of, fd: g.fd}}
	if o := p.Run(t.Context()); o.Err == nil || o.Stdout != nil {
		t.Errorf("it ran without its group: %v %q", o.Err, o.Stdout)
	}
	p.Group = g // known to be unusable by now
	if o := p.Run(t.Context()); o.Err == nil || o.Stdout != nil {
		t.Errorf("it ran without its group: %v %q", o.Err, o.Stdout)
	}
	p = Program{Path: "/no/such", Timeout: patience, Group: &Group{of: g.of, fd: g.fd}}
	if o := p.Run(t.Context()); !errors.Is(o.Err, fs.ErrNotExist) || p.Group.disabled.Load() {
		t.Errorf("%v", o.Err)
	}
}

// groups returns control groups that are removed when the test ends.
func groups(t *testing.T, limits Limits) *Groups {
	t.Helper()
	s, err := OpenGroups(filepath.Join(parent(t), "set"), limits, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func member(t *testing.T, s *Groups, name string) *Group {
	t.Helper()
	g, err := s.Make(name)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestGroupEndsWhatLeftTheProcessGroup also tests killing processes one by one, as before Linux
// 5.14.
func TestGroupEndsWhatLeftTheProcessGroup(t *testing.T) {
	for _, singly := range []bool{false, true} {
		t.Run(fmt.Sprint("singly ", singly), func(t *testing.T) {
			s, mark := groups(t, Limits{Processes: 100}), testenv.MarkProcesses(t)
			g := member(t, s, "a")
			if singly {
				if err := unix.Access(filepath.Join(g.dir, "cgroup.freeze"), unix.W_OK); err != nil {
					t.Skip(err)
				}
				s.singly = true
			}
			path, args := self(t, "escape")
			for range 3 {
				p := Program{Path: path, Args: args, Timeout: patience, Group: g}
				if o := p.Run(t.Context()); o.Err != nil || string(o.Stdout) != "escaped\n" {
					t.Errorf("%v %q", o.Err, o.Stdout)
				}
				testenv.Until(t, "end of its processes", patience, func() bool { return mark.Count() == 0 })
			}
			g.Close()
			g.Close()
			if _, err := os.Stat(g.dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the group is left: %v", err)
			}
		})
	}
}

// TestForkBombIsKilledSingly checks that processes that fork while they are killed don't escape.
func TestForkBombIsKilledSingly(t *testing.T) {
	s, mark := groups(t, Limits{Processes: 60}), testenv.MarkProcesses(t)
	g := member(t, s, "a")
	s.singly = true
	p := Program{Path: testenv.Script(t, "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); setsid sleep 1000 & done; wait"), Timeout: patience, Group: g}
	if o := p.Run(t.Context()); g.counted && !errors.Is(o.Err, ErrProcesses) {
		t.Errorf("%v", o.Err)
	}
	testenv.Until(t, "end of its processes", patience, func() bool { return mark.Count() == 0 })
}

// TestLateKillSparesTheNextRun: an unkillable process ends while another run uses the group.
func TestLateKillSparesTheNextRun(t *testing.T) {
	testenv.HoldKernel(t) // others would detect the hung task
	g, dir, disk := member(t, groups(t, Limits{Processes: 100}), "a"), t.TempDir(), disklab.NewExt4(t, 8<<20)
	began, pipe := filepath.Join(dir, "began"), filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	line, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer line.Close()

	thaw := disk.Freeze()
	p := Program{Path: testenv.Script(t, "echo >"+began+"\n: >"+disk.Dir+"/file"), Group: g}
	stuck, err := p.start()
	if err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "hang", patience, func() bool {
		_, err := os.Stat(began)
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", stuck.cmd.Process.Pid))
		return err == nil && bytes.Contains(stat, []byte(") D "))
	})
	killed, cancel := context.WithCancel(t.Context())
	cancel()
	first := stuck.supervise(killed, 0)
	if !errors.Is(first.Err, ErrStuck) {
		t.Fatal(first.Err)
	}

	p = Program{Path: testenv.Script(t, "read _ <"+pipe), Group: g}
	next, err := p.start()
	if err != nil {
		t.Fatal(err)
	}
	thaw()
	<-stuck.ended
	if _, err := line.WriteString("end\n"); err != nil {
		t.Fatal(err)
	}
	if o := next.supervise(t.Context(), patience); o.Err != nil || !o.State.Success() {
		t.Errorf("the next run: %v, %v", o.State, o.Err)
	}
}

func TestWhatAKilledAgentLeftIsKilled(t *testing.T) {
	dir, mark := filepath.Join(parent(t), "set"), testenv.MarkProcesses(t)
	old, err := OpenGroups(dir, Limits{Processes: 10}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p := Program{Path: testenv.Script(t, "sleep 1000 >/dev/null 2>&1"), Timeout: patience, Group: member(t, old, "2")}
	left, err := p.start()
	if err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "start", patience, func() bool { return mark.Count() == 2 })
	again, err := OpenGroups(dir, Limits{Processes: 10}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	<-left.exited
	_ = left.cmd.Wait()
	left.stdout.close()
	left.stderr.close()
	testenv.Until(t, "end of its processes", patience, func() bool { return mark.Count() == 0 })
	old.Close()
	again.Close()
}
