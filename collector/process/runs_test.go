package process

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// TestStuckChildHoldsUpTheNextRun: a program ends, but a process that it has started can't be
// killed. Such processes must not pile up.
func TestStuckChildHoldsUpTheNextRun(t *testing.T) {
	for _, group := range []bool{false, true} {
		t.Run(fmt.Sprint("control group ", group), func(t *testing.T) {
			testenv.HoldKernel(t) // others would detect the hung task
			disk := disklab.NewExt4(t, 8<<20)
			mark, p := testenv.MarkProcesses(t), Program{Timeout: patience}
			p.Path, p.Args = self(t, "leave", disk.Dir+"/file")
			if group {
				p.Group = member(t, groups(t, Limits{Processes: 100}), "a")
				p.Args = append(p.Args, "in another session")
			}
			var runs Runs
			thaw := disk.Freeze()
			if o := runs.Run(t.Context(), &p); o.Err != nil || !o.State.Success() {
				t.Fatalf("%v, %v", o.Err, o.State)
			}
			for range 2 {
				if o := runs.Run(t.Context(), &p); !errors.Is(o.Err, ErrStuck) || o.Started {
					t.Errorf("beside a process that is left: %v, %v", o.Err, o.State)
				}
			}
			if n := mark.Count(); n != 1 {
				t.Errorf("%d processes are stuck, want 1", n)
			}
			thaw()
			testenv.Until(t, "the next run", patience, func() bool { return runs.Run(t.Context(), &p).Started })
		})
	}
}

// TestWhatCannotBeKilledKeepsItsGroup: an agent was killed, and its successor creates a group with
// the same name. Since Linux 6.14 a program that is started in a killed group is killed.
func TestWhatCannotBeKilledKeepsItsGroup(t *testing.T) {
	dir := filepath.Join(parent(t), "set")
	open := func() *Groups {
		t.Helper()
		s, err := OpenGroups(dir, Limits{Processes: 100}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	testenv.HoldKernel(t) // others would detect the hung task
	disk, old := disklab.NewExt4(t, 8<<20), open()
	path, args := self(t, "leave", disk.Dir+"/file")
	thaw := disk.Freeze()
	p := Program{Path: path, Args: args, Group: member(t, old, "a"), Timeout: patience}
	if o := p.Run(t.Context()); o.Err != nil || !o.State.Success() {
		t.Fatalf("%v, %v", o.Err, o.State)
	}
	p = Program{Path: testenv.Script(t, "echo ran"), Group: member(t, open(), "a"), Timeout: patience}
	if o := p.Run(t.Context()); o.Err != nil || string(o.Stdout) != "ran\n" {
		t.Errorf("the next agent's: %v, %v, %q", o.Err, o.State, o.Stdout)
	}
	thaw()
}
