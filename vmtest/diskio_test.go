package vmtest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// TestDiskIO makes requests to disks fail in every way that is possible without hardware. Its rows
// run in parallel, because they mostly wait.
func TestDiskIO(t *testing.T) {
	rules := quickDiskRules(t)
	// Started before any device-mapper device exists.
	lab := &diskLab{agent: startAgent(t, "--rules-dir", rules), turn: new(sync.Mutex)}
	t.Cleanup(func() { lab.end(t) })
	lab.owner = joinControlGroup(t, "/kn-disk")
	bio := lab.bioBased(t) // kept to the end, as another disk must not get its name
	t.Run("bio-based", func(t *testing.T) { lab.run(t, bio) })
	rows := []struct {
		name    string
		provoke func(*testing.T) *diskFault
	}{
		{"loop-write", func(t *testing.T) *diskFault { return lab.injected(t, inject.DiskWrite) }},
		{"loop-full", func(t *testing.T) *diskFault { return lab.injected(t, inject.DiskFull) }},
		{"scsi-medium-read", func(t *testing.T) *diskFault { return mediumFault(fakeDisk(t, 0)) }},
		{"dm-over-scsi-medium", lab.mappedMedium},
		{"null-blk-badblocks-read", func(t *testing.T) *diskFault { return badBlocks(t, "read", unix.O_DIRECT) }},
		{"null-blk-badblocks-write", func(t *testing.T) *diskFault { return badBlocks(t, "write", unix.O_DIRECT) }},
		{"buffered-read", func(t *testing.T) *diskFault { return badBlocks(t, "read", 0) }},
		{"dm-error-read", func(t *testing.T) *diskFault { return lab.errorTarget(t, "read", "read") }},
		{"dm-error-write", func(t *testing.T) *diskFault { return lab.errorTarget(t, "write", "write") }},
		{"virtio-blkdebug-read", func(t *testing.T) *diskFault { return blkdebug(t, "read", 2048) }},
		{"virtio-blkdebug-write", func(t *testing.T) *diskFault { return blkdebug(t, "write", 4096) }},
		{"xfs-mounted", lab.xfsFile},
		{"bcache-write", lab.bcacheWrite},
		{"nvme-path", lab.nvmePath},
		{"nvme-no-path", lab.nvmeWithoutPath},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			lab.run(t, row.provoke(t))
		})
	}
	t.Run("dm-error-before-agent", func(t *testing.T) {
		t.Parallel()
		mapTables(t, "early", "0 8 error")
		late := &diskLab{agent: startAgent(t, "--rules-dir", rules), turn: lab.turn, owner: lab.owner}
		late.run(t, late.errorTarget(t, "late", "write"))
		late.end(t)
	})
}

// quickDiskRules returns the shipped rules with a clearAfter of 5 s, except for a volume's: its
// problem must end before its cause's, as with the shipped durations.
func quickDiskRules(t *testing.T) string {
	t.Helper()
	dir := quickRules(t, "diskio", "clearAfter", "5s")
	path := filepath.Join(dir, "diskio.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const clear = "clearAfter: 5s" // keys are sorted, so this is before the name
	volume := bytes.LastIndex(text[:bytes.Index(text, []byte("name: volume-io-error"))], []byte(clear))
	text[volume+len(clear)-2] = '4'
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// diskLab is an agent and what parallel rows share.
type diskLab struct {
	agent *agenttest.Agent
	owner string // cgroup that I/O is charged to
	// turn is held while making requests fail. Since v7.0 a program on a tracepoint can be
	// preempted, and meanwhile the kernel skips it for other tasks on that CPU: a loss that is
	// reported, and that TestFlood covers.
	turn *sync.Mutex
}

// end fails the test if a record was lost or a disk stays unhealthy.
func (l *diskLab) end(t *testing.T) {
	t.Helper()
	noLoss(t, l.agent.Entries())
	l.checkNoPaths(t)
	l.agent.WaitIn(t, "healthy disks", 30*time.Second, func(entries []journal.Entry) bool {
		return agenttest.Condition(entries, "DiskUnhealthy").Status == problem.False
	})
}

// run provokes a fault and fails the test if a report of the agent is wrong.
func (l *diskLab) run(t *testing.T, f *diskFault) {
	t.Helper()
	for of, now := f, time.Now(); of != nil; of = of.below {
		of.since = now
	}
	sectors := l.provoke(t, f)
	for ; f != nil; f = f.below {
		rules := f.rules()
		entries := l.agent.WaitIn(t, "end of the errors of "+f.device, 90*time.Second, func(entries []journal.Entry) bool {
			return len(f.events(entries)) >= f.before+len(sectors) && !slices.ContainsFunc(rules, func(rule string) bool {
				states := agenttest.States(f.own(entries), rule, f.isSubject)
				return len(states) == 0 || states[len(states)-1] != problem.Resolved
			})
		})
		f.checkEvents(t, entries, sectors, l.owner)
		f.checkProblems(t, f.own(entries), rules[0])
		f.checkHealth(t, entries, slices.Contains(rules, unhealthyRule))
	}
}

// provoke makes requests fail, alternating with successful ones, and returns the sectors.
func (l *diskLab) provoke(t *testing.T, f *diskFault) (sectors []uint64) {
	t.Helper()
	l.turn.Lock()
	defer l.turn.Unlock()
	succeed := func() {
		if err := f.succeed(); err != nil {
			t.Fatalf("a request that should succeed: %v", err)
		}
	}
	succeed()
	if f.mount.Path != "" {
		l.awaitMount(t, f)
	}
	for range faults {
		sector, err := f.fail()
		var errno unix.Errno
		if !errors.As(err, &errno) || f.errno != 0 && errno != f.errno {
			t.Fatalf("request at sector %d ended with %v, want %v", sector, err, f.errno)
		}
		f.errno = errno // the same each time
		sectors = append(sectors, sector)
	}
	succeed()
	return sectors
}
