package vmtest

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// diskFault is a device whose requests fail in one way, and how that must be reported.
type diskFault struct {
	device  string
	succeed func() error                      // sends a request that succeeds
	fail    func() (sector uint64, err error) // sends a request that fails; returns the device's sector
	errno   unix.Errno                        // error of fail; 0 for EIO or ENOSPC, as the kernel reports it
	op      string
	bytes   uint32
	bio     bool
	mount   event.Mount
	before  int        // number of faults until the agent was known to be ready
	offset  uint64     // of the device's sectors from those that fail returns
	below   *diskFault // the device that causes the fault; nil for the device itself
	since   time.Time  // before it, another row's device may have had the name
}

const unhealthyRule = "disk-unhealthy"

// rules returns the rules that must report the fault, the temporary one first.
func (f *diskFault) rules() []string {
	switch {
	case f.below != nil:
		return []string{"volume-io-error"}
	case f.errno == unix.ENOSPC:
		return []string{"disk-out-of-space"} // the device is not unhealthy
	}
	return []string{"disk-io-error", unhealthyRule}
}

func (f *diskFault) isSubject(p *problem.Problem) bool {
	return p.Subject == f.device || f.mount.Path != "" && p.Subject == f.device+" at "+f.mount.Path
}

// events returns the errors of the device except those of read-ahead, which no task waits for.
func (f *diskFault) events(entries []journal.Entry) []*event.Event {
	return slices.DeleteFunc(agenttest.Events(f.own(entries), event.DiskIO), func(ev *event.Event) bool {
		return ev.Device.Name != f.device || ev.DiskIO.ReadAhead
	})
}

// own returns the entries since the device has its name.
func (f *diskFault) own(entries []journal.Entry) []journal.Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e journal.Entry) bool { return e.Now.Before(f.since) })
}

func (f *diskFault) checkEvents(t *testing.T, entries []journal.Entry, sectors []uint64, owner string) {
	t.Helper()
	events := f.events(entries)
	if len(events) != f.before+len(sectors) {
		for _, ev := range events {
			t.Logf("%s: %s %+v, times %d, cgroup %v", ev.Time.Format(time.TimeOnly+".000000"), ev.Task, *ev.DiskIO, ev.Times, ev.Cgroup)
		}
		t.Fatalf("%s: %d failed requests gave %d events", f.device, f.before+len(sectors), len(events))
	}
	want := event.DiskIOData{Op: f.op, Bytes: f.bytes, Bio: f.bio, Error: unix.ErrnoName(f.errno), Status: hostfs.BlkStatusOfErrno(int32(f.errno))}
	if f.below != nil {
		want.Lower = f.below.device
	}
	var at []event.Mount
	if f.mount.Path != "" {
		at = []event.Mount{f.mount}
	}
	for i, ev := range events[f.before:] {
		want.Sector = f.offset + sectors[i]
		if *ev.DiskIO != want {
			t.Errorf("error %d: %+v, want %+v", i, *ev.DiskIO, want)
		}
		if ev.Cgroup == nil || ev.Cgroup.Path != owner {
			t.Errorf("error %d: charged to %+v, want %s", i, ev.Cgroup, owner)
		}
		if !slices.Equal(ev.Device.Mounts, at) {
			t.Errorf("error %d: %+v, want it at %v", i, *ev.Device, at)
		}
	}
}

// checkProblems requires that the rule reports each error and their end.
func (f *diskFault) checkProblems(t *testing.T, entries []journal.Entry, rule string) {
	t.Helper()
	reported := episodes(t, problems(entries, rule, f.isSubject))
	if n := f.before + faults; len(reported) != n {
		t.Errorf("the problem was reported %d times, want %d errors", len(reported), n)
	}
	cause := ""
	if f.below != nil {
		cause = f.below.rules()[0]
	}
	for i, p := range reported {
		if p.SuppressedBy != cause {
			t.Errorf("error %d: caused by %q, want %q", i, p.SuppressedBy, cause)
		}
	}
	t.Log(reported[0].Message)
}

// checkHealth requires that the device is unhealthy from the fifth error to the end, or never.
func (f *diskFault) checkHealth(t *testing.T, entries []journal.Entry, unhealthy bool) {
	t.Helper()
	all := problems(f.own(entries), unhealthyRule, f.isSubject)
	if !unhealthy {
		if len(all) > 0 {
			t.Errorf("no ill health of its own: %+v", all[0])
		}
		return
	}
	if len(all) < 2 || all[0].State != problem.Firing || all[0].Count != 5 || all[len(all)-1].State != problem.Resolved {
		t.Errorf("ill health: %+v, want it from the fifth error on, and its end", all)
	}
	for i := range entries {
		if entries[i].Now.Before(f.since) || len(problems(entries[i:i+1], unhealthyRule, f.isSubject)) == 0 {
			continue
		}
		if status := agenttest.Condition(entries[:i+1], "DiskUnhealthy").Status; status != problem.True {
			t.Errorf("DiskUnhealthy is %s while %s is", status, f.device)
		}
		return
	}
}
