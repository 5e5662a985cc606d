package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/kubetest/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// beKernosis makes the test binary act as the real command.
const beKernosis = "KERNOSIS_TEST_BE_KERNOSIS"

// apiServer is started when the first test uses it.
var apiServer = kubetest.Shared{Own: true} //nolint:gochecknoglobals // the controller works on all nodes

func TestMain(m *testing.M) {
	if inject.RunChild(os.Args) {
		return
	}
	if os.Getenv(beKernosis) != "" {
		main()
		return
	}
	if os.Getenv(growEnv) != "" {
		grow()
		return
	}
	os.Exit(apiServer.Run(m))
}

func newAgent(t testing.TB, args ...string) *agenttest.Agent {
	t.Helper()
	testenv.HoldKernel(t)
	a := agenttest.New(t, os.Args[0], args...)
	a.Env = []string{beKernosis + "=1"}
	return a
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// needKernel is called by tests that load programs or provoke real faults. It skips without root.
func needKernel(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads programs and provokes real faults")
	}
	testenv.HoldKernel(t)
}

// kills returns the PIDs of the victims in a cgroup, in the order of entries.
func kills(entries []journal.Entry, cgroup string) []uint32 {
	var pids []uint32
	for _, e := range entries {
		if e.Event != nil && e.Event.Kind == event.OOMKill && e.Event.Cgroup != nil && strings.HasSuffix(cgroup, e.Event.Cgroup.Path) {
			pids = append(pids, e.Event.Task.PID)
		}
	}
	return pids
}

// Nine kills give nine events, although the agent is killed after the third and restarted after the
// sixth.
func TestOOMKillsAcrossKillOfTheAgent(t *testing.T) {
	needKernel(t)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(2*time.Minute))
	defer cancel()
	p := newAgent(t)
	p.Start()
	p.WaitSources(0)

	oom := &inject.OOM{StateDir: t.TempDir()}
	if err := oom.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer oom.Close()
	var want []uint32
	for i := range 9 {
		switch i {
		case 3:
			// At once, so that the agent may be anywhere in processing the third.
			p.Kill()
		case 6:
			p.Start()
		}
		pid, err := oom.Kill(ctx)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, uint32(pid))
	}
	p.Wait("last kill", 20*time.Second, func(entries []journal.Entry) bool {
		pids := kills(entries, oom.Cgroup())
		return len(pids) > 0 && pids[len(pids)-1] == want[8]
	})
	p.Stop()

	// The output before the kill may lack the last line; the journal does not.
	var entries []journal.Entry
	if _, err := journal.Read(filepath.Join(p.State, agent.JournalDir), 0, func(e journal.Entry) error {
		entries = append(entries, e)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := kills(entries, oom.Cgroup()); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("journal has %d kills %v,\nwant %d %v", len(got), got, len(want), want)
	}
	lines, count := 0, uint64(0)
	for _, e := range entries {
		if e.Event != nil && e.Event.Lost != nil {
			t.Errorf("lost: %+v", *e.Event.Lost)
		}
		for _, tr := range e.Transitions {
			// By the group, because the kernel's log may report first.
			if p := tr.Problem; p != nil && p.Fault == "oom" && p.State == problem.Firing && strings.HasSuffix(p.Group, filepath.Base(oom.Cgroup())) {
				lines++
				count = max(count, tr.Problem.Count)
			}
		}
	}
	if lines != len(want) || count != uint64(len(want)) {
		t.Errorf("%d occurrences of the problem, the last counts %d; want nine: the restart forgot or repeated some", lines, count)
	}
}

// The report names the killed child, not the container's main process.
func TestOOMKillOfAChildNamesIt(t *testing.T) {
	needKernel(t)
	p := newAgent(t)
	p.Start()
	p.WaitSources(0)
	oom := &inject.OOM{StateDir: t.TempDir()}
	if err := oom.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer oom.Close()
	pid, err := oom.Kill(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ev *event.Event
	p.Wait("kill", 10*time.Second, func(entries []journal.Entry) bool {
		for _, e := range entries {
			if len(kills([]journal.Entry{e}, oom.Cgroup())) > 0 {
				ev = e.Event
			}
		}
		return ev != nil
	})
	if ev.Task.PID != uint32(pid) || ev.Task.Comm != "kn-oom-child" {
		t.Errorf("victim %s, want kn-oom-child[%d]", ev.Task, pid)
	}
	d := ev.OOMKill
	if d.Scope != "memcg" || d.LimitCgroup == nil || !strings.HasSuffix(oom.Cgroup(), d.LimitCgroup.Path) || d.Limit != inject.DefaultMemoryLimit {
		t.Errorf("limit: %+v of %+v, want %d of %s", d.Limit, d.LimitCgroup, inject.DefaultMemoryLimit, oom.Cgroup())
	}
	// Charges of other CPUs that are about to fail are briefly included: one batch
	// of 64 pages each.
	if slack := uint64(4 * 64 * os.Getpagesize()); d.Usage+slack < d.Limit || d.Usage > d.Limit+slack {
		t.Errorf("usage %d, want about the limit %d", d.Usage, d.Limit)
	}
	if d.AnonRSS < 16<<20 || d.AnonRSS > d.Limit {
		t.Errorf("anon %d, want most of %d", d.AnonRSS, d.Limit)
	}
	if d.OOMScoreAdj != 500 {
		t.Errorf("oom_score_adj %d, want 500", d.OOMScoreAdj)
	}
	if d.Trigger == nil || d.Trigger.TGID != uint32(pid) {
		t.Errorf("trigger %v, want the victim itself", d.Trigger)
	}
}

// A hang that outlasts a kill -9 of the agent is one problem, and clears.
func TestHungTaskAcrossKillOfTheAgent(t *testing.T) {
	testenv.OnlyInTestAll(t)
	needKernel(t)
	p := newAgent(t, "--hung-task-after", "2s")
	p.Start()
	p.WaitSources(0)
	hang := &inject.HungTask{}
	info, err := hang.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer hang.Close()
	waiter := fmt.Sprintf("%s[%d]", info.Waiter.Comm, info.Waiter.TID)
	holder := "held by unknown" // before v6.16 the kernel does not record it
	kernel, err := bpf.OpenKernel()
	if err != nil {
		t.Fatal(err)
	}
	if kernel.HasField("task_struct", "blocker") {
		holder = fmt.Sprintf("held by %s[%d]", info.Holder.Comm, info.Holder.TID)
	}
	ours := func(pr *problem.Problem) bool { return strings.HasPrefix(pr.Message, waiter) }
	entries := p.Wait("hang", 20*time.Second, func(entries []journal.Entry) bool {
		return len(agenttest.States(entries, "task-hung", ours)) > 0
	})
	for _, e := range entries {
		for _, tr := range e.Transitions {
			if tr.Problem != nil && tr.Problem.Rule == "task-hung" && ours(tr.Problem) && !strings.Contains(tr.Problem.Message, holder) {
				t.Errorf("message %q does not say %q", tr.Problem.Message, holder)
			}
		}
	}
	p.Kill()
	before := len(p.Entries())
	p.Start()
	p.WaitSources(before)
	if err := hang.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	healed := time.Now()
	entries = p.Wait("end of the hang", 10*time.Second, func(entries []journal.Entry) bool {
		states := agenttest.States(entries, "task-hung", ours)
		return states[len(states)-1] == problem.Resolved
	})
	if got := agenttest.States(entries, "task-hung", ours); fmt.Sprint(got) != "[firing resolved]" {
		t.Errorf("states %v, want one hang that resolves once", got)
	}
	t.Logf("resolved %s after it was healed", time.Since(healed).Round(time.Millisecond))
}

// New rules take effect without a restart; invalid ones are refused and the
// running ones stay.
func TestRulesAreReloaded(t *testing.T) {
	testenv.OnlyInTestAll(t)
	needKernel(t)
	dir := t.TempDir()
	rule := func(reason string) string {
		return "apiVersion: rules.kernosis.io/v1\nrules:\n- name: oom-kill\n  events: [oomkill]\n  reason: " + reason + "\n  message: ${task.comm} of ${cgroup.path}\n"
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "own.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(rule("MemoryGone"))
	p := newAgent(t, "--rules-dir", dir)
	p.Start()
	p.WaitSources(0)
	oom := &inject.OOM{StateDir: t.TempDir()}
	if err := oom.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer oom.Close()
	killAs := func(reason string) {
		t.Helper()
		before := len(p.Entries())
		if _, err := oom.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.Wait(reason, 10*time.Second, func(entries []journal.Entry) bool {
			return len(agenttest.States(entries[before:], "oom-kill", func(pr *problem.Problem) bool {
				return pr.Reason == reason && pr.State == problem.Firing && strings.HasSuffix(oom.Cgroup(), strings.TrimPrefix(pr.Message, "kn-oom-child of "))
			})) > 0
		})
	}
	killAs("MemoryGone")
	write("rules: nonsense")
	if log, ok := p.Log.Wait(10*time.Second, func(s string) bool { return strings.Contains(s, "own.yaml:1:") }); !ok {
		t.Fatalf("the bad file is not reported with its line:\n%s", log)
	}
	killAs("MemoryGone")
	write(rule("MemoryShort"))
	if log, ok := p.Log.Wait(10*time.Second, func(s string) bool { return strings.Contains(s, "rules reloaded") }); !ok {
		t.Fatalf("not reloaded:\n%s", log)
	}
	killAs("MemoryShort")
}

func TestSIGTERMDetachesEverything(t *testing.T) {
	needKernel(t)
	p := newAgent(t)
	p.Start()
	p.WaitSources(0)
	if _, err := os.Stat(p.Pins); err != nil {
		t.Fatalf("nothing is pinned while the agent runs: %v", err)
	}
	p.Stop()
	if _, err := os.Stat(p.Pins); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pins are left after SIGTERM: %v", err)
	}
}

// A second agent exits if the first one uses the same pin root or state folder, and writes nothing there.
func TestSecondAgentIsRefused(t *testing.T) {
	needKernel(t)
	p := newAgent(t)
	p.Start()
	p.WaitSources(0)
	for taken, args := range map[string][]string{
		p.Pins:  {"--state-dir", t.TempDir(), "--pin-root", p.Pins},
		p.State: {"--state-dir", p.State, "--pin-root", p.Pins},
	} {
		other := exec.Command(os.Args[0], append([]string{"run", "--listen", ""}, args...)...)
		other.Env = append(os.Environ(), beKernosis+"=1")
		out, err := other.CombinedOutput()
		if err == nil || !strings.Contains(string(out), taken+": another kernosis is running") {
			t.Errorf("%s: got %v: %s", taken, err, out)
		}
	}
	starts := 0
	if _, err := journal.Read(filepath.Join(p.State, agent.JournalDir), 0, func(e journal.Entry) error {
		if e.Boot != "" {
			starts++
		}
		return nil
	}); err != nil || starts != 1 {
		t.Errorf("the journal has %d starts, %v", starts, err)
	}
}

// Without privileges the agent reports what is missing and does what it can.
func TestWithoutPrivilege(t *testing.T) {
	needKernel(t) // to become nobody
	//nolint:usetesting // nobody may not enter the folder that holds t.TempDir's
	dir, err := os.MkdirTemp("", "kernosis-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	const nobody = 65534
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	// The test binary is in a folder that nobody can't enter.
	binary := filepath.Join(dir, "kernosis")
	raw, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	testenv.WriteProgram(t, binary, string(raw))
	cmd := exec.Command(binary, "run", "-o", "json", "--state-dir", filepath.Join(dir, "state"), "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), beKernosis+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Stdout = io.Discard
	var stderr agenttest.Log
	process.RunUntilEnd(t, cmd, &stderr.LogBuffer)
	url := stderr.URL(t)
	// It serves before its sources have reported their state.
	testenv.UntilShown(t, "a blind source in the metrics", 20*time.Second, func() (bool, string) {
		status, body := get(t, url+"/metrics")
		return status == http.StatusOK && strings.Contains(body, `kernosis_source_up{stem="oomkill"} 0`), fmt.Sprintf("%d\n%s", status, body)
	})
	// A restart would not help.
	if status, body := get(t, url+"/healthz"); status != http.StatusOK {
		t.Errorf("healthz of a blind agent: %d %s, want 200", status, body)
	}
	if log := stderr.String(); !strings.Contains(log, "CAP_BPF") || !strings.Contains(log, "CAP_PERFMON") {
		t.Errorf("the missing capabilities are not named:\n%s", log)
	}
}

func TestHealthAndMetrics(t *testing.T) {
	needKernel(t)
	p := newAgent(t, "--listen", "127.0.0.1:0")
	p.Start()
	p.WaitSources(0)
	url := p.Log.URL(t)
	testenv.UntilShown(t, "it is ready", 10*time.Second, func() (bool, string) {
		status, body := get(t, url+"/readyz")
		return status == http.StatusOK, fmt.Sprintf("%d %s", status, body)
	})
	p.Wait("mount, diskstall and log sources", 10*time.Second, func(entries []journal.Entry) bool {
		up := map[string]bool{}
		for _, e := range entries {
			if e.Event != nil && e.Event.Kind == event.Source && e.Event.SourceUp.Up {
				up[e.Event.SourceUp.Stem] = true
			}
		}
		return up["mount"] && up["diskstall"] && up["log/kmsg"]
	})
	if status, body := get(t, url+"/healthz"); status != http.StatusOK {
		t.Errorf("healthz: %d %s", status, body)
	}
	_, body := get(t, url+"/metrics")
	for _, want := range []string{`kernosis_source_up{stem="oomkill"} 1`, `kernosis_events_total{kind="oomkill"}`, "kernosis_journal_bytes"} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	// No condition is Unknown: a source that does not report that it is up would
	// leave its conditions Unknown.
	set, err := agent.LoadRules("")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range set.Conditions() {
		if unknown := fmt.Sprintf(`kernosis_condition{status="Unknown",type=%q} 0`, c.Type); !strings.Contains(body, unknown) {
			t.Errorf("metrics lack %s", unknown)
		}
	}
}
