package observe

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

const (
	podUID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
	id     = "8a1f8a1f8a1f8a1f8a1f8a1f8a1f8a1f8a1f8a1f8a1f8a1f8a1f8a1f8a1f8a1f"
)

// files creates a root with these files.
func files(t *testing.T, of map[string]string) (hostfs.FS, func(path, text string)) {
	t.Helper()
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		at := filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range of {
		write(path, text)
	}
	return hostfs.New(root), write
}

func stat(pid int, comm string, state byte) string {
	return fmt.Sprintf("%d (%s) %c 1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 500 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n", pid, comm, state)
}

// cgroup v2, from files: the last ten seconds and the current state. Time is virtual, because an
// inspection ends when its time is over. In a cgroup namespace of the agent's own, two levels
// down, the kernel prefixes each path with the way up to the root.
func TestLookV2(t *testing.T) {
	for name, up := range map[string]string{"on the machine": "", "in a container": "/../.."} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testLookV2(t, up) }) })
	}
}

func testLookV2(t *testing.T, up string) {
	const pod = "/kubepods.slice/kubepods-pod0f1e2d3c_4b5a_6978_8796_a5b4c3d2e1f0.slice"
	const group = pod + "/cri-containerd-" + id + ".scope"
	const dir, podDir = "sys/fs/cgroup" + group, "sys/fs/cgroup" + pod
	mounts := "30 23 0:26 " + cmp.Or(up, "/") + " /sys/fs/cgroup rw,nosuid - cgroup2 none rw\n"
	cpu := func(periods, throttled, usec int) string {
		return fmt.Sprintf("usage_usec 1\nnr_periods %d\nnr_throttled %d\nthrottled_usec %d\n", periods, throttled, usec)
	}
	fs, write := files(t, map[string]string{
		"proc/1/mountinfo": mounts, "proc/self/mountinfo": mounts,
		"proc/811/cgroup": "0::" + up + group + "/inner\n", "proc/811/stat": stat(811, "app", 'S'),
		"proc/811/task/811/stat": stat(811, "app", 'S'), "proc/811/task/812/stat": stat(812, "worker", 'D'),
		dir + "/cpu.stat": cpu(1000, 100, 5_000_000), dir + "/cpu.max": "20000 100000\n",
		dir + "/cpu.pressure":  "some avg10=61.50 avg60=1.00 avg300=0.00 total=1\nfull avg10=60.00 avg60=0.00 avg300=0.00 total=1\n",
		dir + "/cgroup.events": "populated 1\nfrozen 0\n", dir + "/cgroup.procs": "811\n", dir + "/memory.current": "1\n",
		podDir + "/cpu.stat": cpu(1000, 0, 0), podDir + "/cpu.max": "max 100000\n",
	})
	w := newVitals(fs)
	w.set([]container{{id: id, limited: true, running: true}, {id: strings.Repeat("b", 64), limited: true, running: true}}, 0)
	t0 := time.Unix(1000, 0)
	if f := w.look(strings.Repeat("c", 64), t0); f.Known {
		t.Errorf("of a container that is not watched: %+v", f)
	}
	w.sample(t0)
	if g := w.group(id); g != group {
		t.Errorf("group %s", g)
	}
	write(dir+"/cpu.stat", cpu(1100, 190, 13_200_000))
	f := w.look(id, t0.Add(10*time.Second))
	if f.Throttled != 82 || f.ThrottledIn != 10*time.Second || f.Pressure != 61.5 || f.InSleep != 1 || f.Threads != 2 || len(f.Blocked) != 0 {
		t.Errorf("%+v", f)
	}
	d := event.ProbeOutcome{Cause: "no byte back in 1s"}
	f.fill(&d, "container")
	if d.Cause != "no byte back in 1s; container CPU-throttled 82 % of the last 10 s" || d.Throttled != 82 || !slices.Contains(d.Evidence, "container CPU-throttled 82 % of the last 10 s (limit 200m)") {
		t.Errorf("%+v", d)
	}
	// Several CPUs waited for longer than the throttled periods last: the periods are the bound.
	write(dir+"/cpu.stat", cpu(1200, 200, 99_000_000))
	if f := w.look(id, t0.Add(10*time.Second)); f.Throttled != 100 {
		t.Errorf("%d %% in 100 of 100 periods", f.Throttled)
	}
	write(dir+"/cpu.stat", cpu(1200, 110, 99_000_000))
	if f := w.look(id, t0.Add(10*time.Second)); f.Throttled != 10 {
		t.Errorf("%d %% in 10 of 100 periods", f.Throttled)
	}
	// Its pod's limit throttled it more, and then less.
	write(podDir+"/cpu.max", "50000 100000\n")
	write(podDir+"/cpu.stat", cpu(1100, 60, 6_000_000))
	f = w.look(id, t0.Add(10*time.Second))
	if evidence, _ := f.evidence("container"); f.Throttled != 60 || f.ThrottledIn != 10*time.Second || !slices.Contains(evidence, "container CPU-throttled 60 % of the last 10 s (limit 500m of its pod)") {
		t.Errorf("%+v: %q", f, evidence)
	}
	write(podDir+"/cpu.stat", cpu(1100, 5, 500_000))
	if f := w.look(id, t0.Add(10*time.Second)); f.Throttled != 10 || f.PodLimit {
		t.Errorf("%+v", f)
	}
	write(podDir+"/cpu.max", "max 100000\n")
	// A container that has restarted under the same ID, and one without a limit.
	write(dir+"/cpu.stat", cpu(5, 0, 0))
	if f := w.look(id, t0.Add(10*time.Second)); f.ThrottledIn != 0 {
		t.Errorf("%+v", f)
	}
	write(dir+"/cpu.stat", cpu(2000, 100, 5_000_000))
	write(dir+"/cpu.max", "max 100000\n")
	if f := w.look(id, t0.Add(10*time.Second)); f.ThrottledIn != 0 {
		t.Errorf("%+v", f)
	}
	write(dir+"/cgroup.events", "populated 1\nfrozen 1\n")
	write("proc/811/task/811/stat", stat(811, "app", 'T'))
	f = w.look(id, t0.Add(11*time.Second))
	if !f.Frozen || len(f.Stopped) != 1 || !strings.Contains(f.cause("container"), "container is frozen") {
		t.Errorf("%+v", f)
	}
	w.oomKilled(&event.Event{Time: t0.Add(10 * time.Second), Container: &event.Container{ID: id}, Task: &event.Task{PID: 9, Comm: "child"}})
	if f = w.look(id, t0.Add(12*time.Second)); f.OOM != "child[9]" || !strings.Contains(f.cause("container"), "OOM kill of child[9] 2s before") {
		t.Errorf("%+v", f)
	}
	if f = w.look(id, t0.Add(3*time.Minute)); f.OOM != "" || f.Ending != "" {
		t.Errorf("after a long time: %+v", f)
	}
	// The container ends.
	write("proc/811/status", "Threads:\t2\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n")
	if f = w.look(id, t0.Add(3*time.Minute)); f.Ending != "all of its processes are being killed" {
		t.Errorf("%+v", f)
	}
	write(dir+"/cgroup.procs", "0\n0\n") // as in another PID namespace
	if f = w.look(id, t0.Add(3*time.Minute)); f.Ending != "" || f.Processes != 0 {
		t.Errorf("%+v", f)
	}
	write(dir+"/cgroup.procs", "")
	if f = w.look(id, t0.Add(3*time.Minute)); f.Ending != "it has no processes left" {
		t.Errorf("%+v", f)
	}
	if err := os.Remove(fs.Path("/" + dir + "/cgroup.procs")); err != nil {
		t.Fatal(err)
	}
	if f = w.look(id, t0.Add(3*time.Minute)); f.Ending != "its cgroup is gone" {
		t.Errorf("%+v", f)
	}
}

// Looks are rate-limited; samples are returned regardless.
func TestLookRate(t *testing.T) {
	w := newVitals(hostfs.New(t.TempDir()))
	now := time.Unix(1000, 0)
	allowed := 0
	for range 2 * lookBurst {
		if w.take(now) {
			allowed++
		}
	}
	if skipped := testutil.ToFloat64(w.skipped); allowed != lookBurst || skipped != lookBurst {
		t.Errorf("%d looks at once, %v skipped", allowed, skipped)
	}
	if !w.take(now.Add(time.Second)) {
		t.Error("none a second later")
	}
}

// A real process in real cgroups: it is throttled, then stopped, then frozen.
func TestRealContainer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes control groups")
	}
	fs := hostfs.New("/")
	layout, err := fs.CgroupLayout()
	if err != nil || layout.Controllers["cpu"] == "" || layout.Controllers["memory"] == "" || layout.Controllers["freezer"] == "" {
		t.Skip("control groups v1 of cpu, memory and freezer are not here; v2 is tested with files")
	}
	// A run at the same time has another container.
	id := fmt.Sprintf("%032x%032x", os.Getpid(), time.Now().UnixNano())
	path := fmt.Sprintf("/kernosis-vitals-%d/kubepods/pod%s/%s", os.Getpid(), podUID, id)
	var dirs []string
	for _, controller := range []string{"cpu", "memory", "freezer"} {
		dir := layout.Controllers[controller] + path
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Skipf("control groups can't be made: %s", err)
		}
		dirs = append(dirs, dir)
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	// Both limits, as kubelet sets them for a pod with one container. Even on a busy machine the
	// process uses up so small a quota early in each period.
	write(filepath.Dir(dirs[0])+"/cpu.cfs_quota_us", "1000")
	write(dirs[0]+"/cpu.cfs_quota_us", "1000")
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.WriteFile(dirs[2]+"/freezer.state", []byte("THAWED"), 0)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for _, dir := range dirs {
			for range 4 {
				_ = syscall.Rmdir(dir)
				dir = filepath.Dir(dir)
			}
		}
	})
	for _, dir := range dirs {
		write(dir+"/cgroup.procs", strconv.Itoa(cmd.Process.Pid))
	}
	w := newVitals(fs)
	w.set([]container{{id: id, limited: true, running: true}}, 0)
	until := func(what string, ok func(*facts) bool) (f facts) {
		t.Helper()
		testenv.UntilShown(t, what, 20*time.Second, func() (bool, string) {
			f = w.look(id, time.Now())
			return ok(&f), fmt.Sprintf("%+v", f)
		})
		return f
	}
	w.sample(time.Now())
	// Throttled nearly all the time; it is a matter of chance which of the limits counts it.
	f := until("throttled", func(f *facts) bool { return f.Throttled >= 60 })
	t.Log(f.cause("container"))
	write(dirs[0]+"/cpu.cfs_quota_us", "-1")
	// An inspection has only few milliseconds, sometimes too few beside other tests.
	f = until("throttled by its pod's limit", func(f *facts) bool { return f.Throttled >= 60 && f.PodLimit && f.Processes == 1 })
	if f.Quota != time.Millisecond || f.Frozen || len(f.Stopped) != 0 {
		t.Errorf("%+v", f)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	f = until("stopped", func(f *facts) bool { return len(f.Stopped) == 1 })
	if f.Stopped[0] != fmt.Sprintf("sh[%d]", cmd.Process.Pid) {
		t.Errorf("%+v", f)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	write(dirs[2]+"/freezer.state", "FROZEN")
	until("frozen", func(f *facts) bool { return f.Frozen })
	// The duration of an inspection, for the docs.
	began := time.Now()
	const n = 50
	for range n {
		w.look(id, time.Now())
	}
	t.Logf("a look takes %s", time.Since(began)/n)
}

// The cost of sampling one limit. A container has two: its own and its pod's.
func BenchmarkSample(b *testing.B) {
	w := newVitals(hostfs.New("/"))
	w.set(nil, os.Getpid())
	w.sample(time.Now())
	if w.group("") == "" {
		b.Skip("there is no cpu control group here")
	}
	for b.Loop() {
		w.sample(time.Now())
	}
	if n := w.watched[""].counters[0].n; n < b.N {
		b.Errorf("%d samples, want %d", n, b.N)
	}
}

// The node's processes are not scanned for a container that has none.
func TestNoWalkForAContainerThatWaits(t *testing.T) {
	w := newVitals(hostfs.New(t.TempDir()))
	now := time.Unix(1000, 0)
	w.set([]container{{id: id, limited: true}}, 0)
	w.sample(now)
	if !w.found.IsZero() {
		t.Error("gone through for a container in a crash loop")
	}
	w.set([]container{{id: id, limited: true, running: true}}, 0)
	w.sample(now)
	if !w.found.Equal(now) {
		t.Error("not gone through for a container that runs")
	}
}
