package vmtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// TestFSError damages filesystems, one row after the other, because all share one condition. Then
// it waits until all errors have ended.
func TestFSError(t *testing.T) {
	rules := quickRules(t, "fserror", "clearAfter", "5s")
	// Started before any such filesystem or its module exists.
	lab := newFSLab(t, startAgent(t, "--rules-dir", rules))
	rows := []struct {
		name    string
		provoke func(*testing.T) *fsFault
	}{
		{"ext4", func(t *testing.T) *fsFault { return lab.ext4Errors(t, faults) }},
		{"ext4-remount-ro", lab.ext4TurnsReadOnly},
		{"ext4-corrupt", lab.ext4Corrupt},
		{"ext4-on-dm-error", lab.ext4LosesDisk},
		{"xfs-shutdown", lab.xfsShutdowns},
		{"btrfs-error", lab.btrfsLosesDisk},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) { lab.reported(t, row.provoke(t)) })
	}
	t.Run("ext4-module-first", func(t *testing.T) {
		module(t, "CONFIG_EXT4_FS", "ext4")
		late := newFSLab(t, startAgent(t, "--rules-dir", rules))
		late.reported(t, late.ext4Errors(t, 1))
	})
}

// fsLab is an agent, and a filesystem that shows what the agent knows.
type fsLab struct {
	agent *agenttest.Agent
	probe *filesystem
}

func newFSLab(t *testing.T, a *agenttest.Agent) *fsLab {
	t.Helper()
	t.Cleanup(func() {
		noLoss(t, a.Entries())
		a.WaitIn(t, "writable filesystems", 30*time.Second, func(entries []journal.Entry) bool {
			return agenttest.Condition(entries, readOnlyCondition).Status == problem.False
		})
	})
	return &fsLab{agent: a, probe: newExt4(t, "errors=continue")}
}

// awaitMounts waits until the agent knows all current mounts, which it learns about 200 ms later.
// Before that it waits until the agent detects errors of ext4: it checks every ten seconds for
// filesystems whose module was loaded.
func (l *fsLab) awaitMounts(t *testing.T) {
	t.Helper()
	again := t.TempDir()
	if err := unix.Mount(l.probe.dir, again, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(again, 0); err != nil {
			t.Error(err)
		}
	}()
	eventually(t, "an error with its mount points", 60*time.Second, func() bool {
		l.probe.triggerError()
		return slices.ContainsFunc(agenttest.Events(l.agent.Entries(), event.FSError), func(ev *event.Event) bool {
			return slices.ContainsFunc(ev.Device.Mounts, func(m event.Mount) bool { return m.Path == again })
		})
	})
}

// fsFault describes faults provoked in a filesystem and how they must be reported.
type fsFault struct {
	fs       *filesystem
	errors   int      // number of errors reported by the filesystem
	readOnly int      // number of times it became read-only
	function string   // function that detected the errors; for xfs the end of a file name; empty for any
	reasons  []string // possible reasons for becoming read-only

	places    []string // "function:line" of each error, if known in advance
	placeless bool     // the kernel has no line to report
}

const (
	fsErrorRule       = "filesystem-error"
	readOnlyRule      = "readonly-filesystem"
	readOnlyCondition = "ReadonlyFilesystem"
)

func (f *fsFault) device() string { return strings.TrimPrefix(f.fs.source, "/dev/") }

// isSubject excludes another row's filesystem on a device of the same name.
func (f *fsFault) isSubject(p *problem.Problem) bool {
	if !strings.HasPrefix(p.Message, f.fs.fsType+" on ") {
		return false
	}
	return p.Subject == f.device() || p.Subject == f.device()+" at "+f.fs.dir
}

func (f *fsFault) events(entries []journal.Entry, kind event.Kind) []*event.Event {
	return slices.DeleteFunc(agenttest.Events(entries, kind), func(ev *event.Event) bool {
		return ev.Device.Name != f.device() ||
			ev.FSError != nil && ev.FSError.FSType != f.fs.fsType || ev.Mount != nil && ev.Mount.Path != f.fs.dir
	})
}

// refuses waits until the agent reports the n-th time that the filesystem refuses writes, and calls
// release, whose effect must be reported too.
func (l *fsLab) refuses(t *testing.T, f *fsFault, release func()) {
	t.Helper()
	f.readOnly++
	states := func(entries []journal.Entry) int {
		return len(agenttest.States(entries, readOnlyRule, f.isSubject))
	}
	entries := l.agent.WaitIn(t, "read-only "+f.fs.source, 30*time.Second, func(entries []journal.Entry) bool {
		return states(entries) >= 2*f.readOnly-1
	})
	want := fmt.Sprintf("%s on %s at %s refuses writes", f.fs.fsType, f.device(), f.fs.dir)
	if c := agenttest.Condition(entries, readOnlyCondition); c.Status != problem.True || c.Reason != "FilesystemIsReadOnly" || !strings.HasPrefix(c.Message, want) {
		t.Errorf("condition %+v, want %q", c, want)
	} else if f.readOnly == 1 {
		t.Log(c.Message)
	}
	release()
	entries = l.agent.WaitIn(t, "end of read-only "+f.fs.source, 30*time.Second, func(entries []journal.Entry) bool {
		return states(entries) >= 2*f.readOnly
	})
	if c := agenttest.Condition(entries, readOnlyCondition); c.Status != problem.False {
		t.Errorf("condition %+v, though nothing is read-only", c)
	}
}
