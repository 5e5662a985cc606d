package vmtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// oomKills describes how a row's kills must be reported.
type oomKills struct {
	pids   []uint32 // in order of the kills
	late   []uint32 // those in pids that were killed when memory was available again
	atOnce uint32   // the process whose allocation caused all kills, in any order; 0 if each caused its own
	comm   string   // of the allocating process
	adj    int16
	group  string // path of the victims' cgroup
	scope  string
	owner  string // path of the cgroup whose limit was exceeded
	limit  uint64 // its limit in bytes

	others   string   // path of a cgroup whose processes may be killed too
	alsoDead []uint32 // those in others that were killed
}

// TestOOMKill causes kills in each of its rows, one row after the other. Then it waits until all
// series have ended.
func TestOOMKill(t *testing.T) {
	// Longer than an emulated machine under load takes between two kills.
	a := startAgent(t, "--rules-dir", quickRules(t, "oomkill", "clearAfter", "15s"))
	t.Cleanup(func() { noLoss(t, a.Entries()) })

	if bootedV1() {
		t.Run("memcg-v1", func(t *testing.T) {
			needMemoryV1(t)
			reported(t, a, injectedKills(t))
		})
		return // the rest does not depend on this
	}
	t.Run("memcg-v2", func(t *testing.T) { reported(t, a, injectedKills(t)) })
	t.Run("memcg-ancestor-limit", func(t *testing.T) { reported(t, a, killsAtAncestor(t)) })
	t.Run("memcg-oom-group", func(t *testing.T) { reported(t, a, groupKill(t)) })
	t.Run("memcg-dying", func(t *testing.T) { reported(t, a, dyingVictims(t)) })
	t.Run("global", func(t *testing.T) {
		protect(t, os.Getpid(), a.PID())
		reported(t, a, globalKills(t))
	})
}

// needMemoryV1 skips the test if the kernel does not support the memory controller on cgroup v1.
// Before v6.11 (e93d4166b40a, CONFIG_MEMCG_V1) every kernel did.
func needMemoryV1(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(memoryV1Root, "memory.limit_in_bytes")); err == nil {
		return
	}
	needConfig(t, "CONFIG_MEMCG_V1")
	t.Fatal("the kernel has the memory controller for cgroup v1, but it is not there")
}

// injectedKills works on the hierarchy that has the memory controller: children of a cgroup's main
// process are killed, and the main process survives.
func injectedKills(t *testing.T) *oomKills {
	t.Helper()
	oom := &inject.OOM{StateDir: t.TempDir()}
	if err := oom.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := oom.Close(); err != nil {
			t.Error(err)
		}
	}()
	path := "/" + filepath.Base(oom.Cgroup())
	want := &oomKills{
		comm: "kn-oom-child", adj: 500, group: path,
		scope: "memcg", owner: path, limit: inject.DefaultMemoryLimit,
	}
	for range faults {
		pid, err := oom.Kill(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want.pids = append(want.pids, uint32(pid))
	}
	return want
}

// killsAtAncestor makes the victims exceed the limit of a parent cgroup.
func killsAtAncestor(t *testing.T) *oomKills {
	t.Helper()
	parent := newControlGroup(t, "/kn-limit", "memory.max=16M", "cgroup.subtree_control=+memory")
	child := newControlGroup(t, "/kn-limit/child")
	want := &oomKills{comm: "dd", adj: 1000, group: child.path, scope: "memcg", owner: parent.path, limit: 16 << 20}
	for range faults {
		want.pids = append(want.pids, child.hog(t, 32))
	}
	return want
}

// groupKill makes one kill take all processes of a cgroup with it.
func groupKill(t *testing.T) *oomKills {
	t.Helper()
	group := newControlGroup(t, "/kn-group", "memory.max=32M", "memory.oom.group=1")
	want := &oomKills{comm: "dd", adj: 1000, group: group.path, scope: "memcg", owner: group.path, limit: 32 << 20}
	want.pids = group.idlers(t, faults-1, 0)
	want.atOnce = group.hog(t, 64)
	want.pids = append(want.pids, want.atOnce)
	return want
}

// dyingVictims makes the kernel free memory of processes that were killed before and can't exit: it
// marks them as victims without killing anything. A real kill follows each.
func dyingVictims(t *testing.T) *oomKills {
	t.Helper()
	needConfig(t, "CONFIG_EXT4_FS")
	// Each fault waits 2 s for the kernel's OOM reaper (since 5.18), longer under emulation.
	frozen := &inject.FSFreeze{StateDir: t.TempDir(), Limit: 20 * time.Minute}
	if _, err := frozen.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	atEnd(t, frozen.Close)
	_, dir := frozen.Mount()
	// Two processes of this size don't fit, but one does, with what the kernel keeps of the dying
	// one.
	const limit, size = 64, 40 // MiB
	group := newControlGroup(t, "/kn-dying", fmt.Sprintf("memory.max=%dM", limit))
	// The processes must be able to exit before the clean-up waits for them.
	defer func() { _ = frozen.Heal(context.WithoutCancel(t.Context())) }()
	want := &oomKills{comm: "dd", adj: 1000, group: group.path, scope: "memcg", owner: group.path, limit: limit << 20}
	for range faults {
		group.dying(t, size, filepath.Join(dir, "file"))
		// The process is killed if the reaper frees the dying one's memory just after the kernel
		// has found too little and is selecting a victim.
		if pid, killed := group.fill(t, size); killed {
			want.pids, want.late = append(want.pids, pid), append(want.late, pid)
		}
		want.pids = append(want.pids, group.hog(t, 2*limit))
	}
	if n, err := numberIn(filepath.Join(group.dir, "memory.events"), "oom_kill"); err != nil || n != len(want.pids) {
		t.Fatalf("the kernel counts %d kills (%v), want %d", n, err, len(want.pids))
	}
	if len(want.late) > faults/2 {
		t.Fatalf("the kernel killed %d of %d processes that fit beside a dying one", len(want.late), faults)
	}
	return want
}

// globalKills exhausts the machine's memory.
func globalKills(t *testing.T) *oomKills {
	t.Helper()
	group := newControlGroup(t, "/kn-global")
	want := &oomKills{comm: "dd", adj: 1000, group: group.path, scope: "global"}
	// While a victim exits, another task that allocates memory may select the next victim, because
	// it notices too late that there is enough memory again. As on any node, there are processes
	// that are killed before the agent.
	others := newControlGroup(t, "/kn-others")
	idle := others.idlers(t, 5, 900)
	left, free := fillMemory(t, 40)
	defer free()
	for range faults {
		want.pids = append(want.pids, group.hog(t, left+100))
	}
	want.others, want.alsoDead = others.path, dead(t, idle)
	return want
}

// reported waits until the kills are reported and over, in parallel with other tests once the first
// kill is reported, and fails the test if a report is wrong.
func reported(t *testing.T, a *agenttest.Agent, want *oomKills) {
	t.Helper()
	subject := want.isSubject
	a.WaitIn(t, "kill of the row", 60*time.Second, func(entries []journal.Entry) bool {
		return len(agenttest.States(entries, "oom-kill", subject)) >= len(want.pids)
	})
	t.Parallel()
	entries := a.WaitIn(t, "end of the kills", 60*time.Second, func(entries []journal.Entry) bool {
		states := agenttest.States(entries, "oom-kill", subject)
		return len(states) > len(want.pids) && states[len(states)-1] == problem.Resolved &&
			agenttest.Condition(entries, "FrequentOOMKilling").Status == problem.False
	})

	var pids, others []uint32
	for _, ev := range agenttest.Events(entries, event.OOMKill) {
		switch {
		case ev.Cgroup == nil:
			t.Errorf("killed: %s, of no cgroup", ev.Task)
		case ev.Cgroup.Path == want.group:
			pids = append(pids, ev.Task.PID)
			want.check(t, ev)
		case ev.Cgroup.Path == want.others:
			others = append(others, ev.Task.PID)
		}
	}
	slices.Sort(others)
	if !slices.Equal(others, want.alsoDead) {
		t.Errorf("reported that %v were killed too, want %v", others, want.alsoDead)
	}
	if want.atOnce != 0 {
		slices.Sort(pids)
		slices.Sort(want.pids)
	}
	if !slices.Equal(pids, want.pids) {
		t.Errorf("%d kills were reported:\n%v, want %d:\n%v", len(pids), pids, len(want.pids), want.pids)
	}
	occurrences := episodes(t, problems(entries, "oom-kill", subject))
	if len(occurrences) != len(want.pids) {
		t.Errorf("the problem was reported %d times, want %d kills", len(occurrences), len(want.pids))
	}
	for i, p := range occurrences[:min(len(occurrences), len(pids))] {
		if p.Reason != "OOMKilling" || want.atOnce == 0 && !strings.Contains(p.Message, fmt.Sprintf("[%d]", pids[i])) {
			t.Errorf("kill %d: %s, %q does not name %d", i+1, p.Reason, p.Message, pids[i])
		}
	}
	switch blamed := len(problems(entries, "oom-kill-frequent", subject)) > 0; {
	case blamed && want.scope == "global":
		t.Errorf("%s is blamed for the node's want of memory", want.group)
	case blamed && want.atOnce != 0:
		t.Errorf("%s ran out of memory once, and is reported to do so again and again", want.group)
	case !blamed && want.scope == "memcg" && want.atOnce == 0:
		t.Errorf("that %s runs out of memory again and again is not reported", want.group)
	}
	t.Logf("%s", occurrences[0].Message)
}

func (w *oomKills) isSubject(p *problem.Problem) bool { return p.Subject == "cgroup "+w.group }

// check fails the test if a kill's event is wrong.
func (w *oomKills) check(t *testing.T, ev *event.Event) {
	t.Helper()
	d := ev.OOMKill
	trigger := ev.Task.TGID
	if w.atOnce != 0 {
		trigger = w.atOnce
	}
	along := ev.Task.TGID != trigger // it allocated nothing itself
	if ev.Task.TGID != ev.Task.PID || ev.Task.Comm != w.comm && !along {
		t.Errorf("victim %s of %d, want a %s", ev.Task, ev.Task.TGID, w.comm)
	}
	if d.Scope != w.scope {
		t.Errorf("%s: scope %s, want %s", ev.Task, d.Scope, w.scope)
	}
	if !along && (d.OOMScoreAdj != w.adj || d.AnonRSS < 8<<20 || w.limit > 0 && d.AnonRSS > w.limit) {
		t.Errorf("%s: oom_score_adj %d, anon %d", ev.Task, d.OOMScoreAdj, d.AnonRSS)
	}
	if w.scope == "global" { // any task that allocates may be the trigger
		if d.LimitCgroup != nil || d.Limit != 0 || d.Trigger == nil {
			t.Errorf("%s: limit %d of %+v, triggered by %v", ev.Task, d.Limit, d.LimitCgroup, d.Trigger)
		}
		return
	}
	if d.Trigger == nil || d.Trigger.TGID != trigger {
		t.Errorf("%s: triggered by %v, want %d", ev.Task, d.Trigger, trigger)
	}
	if d.LimitCgroup == nil || d.LimitCgroup.Path != w.owner || d.Limit != w.limit {
		t.Errorf("%s: limit %d of %+v, want %d of %s", ev.Task, d.Limit, d.LimitCgroup, w.limit, w.owner)
	}
	// Failing charges of other CPUs are counted for a moment: a batch of 64 pages each. A victim
	// killed after another one finds some memory freed.
	slack := uint64(4 * 64 * os.Getpagesize())
	if full := !along && !slices.Contains(w.late, ev.Task.PID); full && d.Usage+slack < d.Limit || d.Usage > d.Limit+slack {
		t.Errorf("%s: usage %d, want about the limit %d", ev.Task, d.Usage, d.Limit)
	}
}
