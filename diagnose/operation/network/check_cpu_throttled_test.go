package network

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/vmtest/operationtest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// cpuCgroup creates a cgroup named like a pod's, with a process that uses as much CPU as it gets,
// at most quota in each 100 ms; 0: no limit.
func cpuCgroup(t *testing.T, quota time.Duration) (uid, path string, pid int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make cgroups")
	}
	l, err := hostfs.New("/").CgroupLayout()
	if err != nil {
		t.Fatal(err)
	}
	mount, v1 := l.Controllers["cpu"]
	if !v1 {
		mount = l.Unified
		controllers, err := os.ReadFile(mount + "/cgroup.subtree_control")
		if err != nil || !matches(string(controllers), `\bcpu\b`) {
			t.Skip("no cpu controller for groups below the root")
		}
	}
	busy := exec.Command("sh", "-c", "while :; do :; done")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	pid = busy.Process.Pid
	stop := func() {
		_ = busy.Process.Kill()
		_ = busy.Wait()
	}
	t.Cleanup(stop)
	uid = "00000000-0000-4000-9000-" + ("000000000000" + strconv.Itoa(pid))[len(strconv.Itoa(pid)):]
	top := "/kernosis-optest-" + strconv.Itoa(pid)
	path = top + "/kubepods/pod" + uid
	dirs := []string{top, top + "/kubepods", path}
	for i, d := range dirs {
		if err := os.Mkdir(mount+d, 0o755); err != nil {
			t.Skipf("no cgroup can be made: %v", err)
		}
		t.Cleanup(func() {
			stop()
			// A process may still count for a moment after it was waited for.
			testenv.Until(t, "the group can be removed", 20*time.Second, func() bool { return os.Remove(mount+d) == nil })
		})
		if !v1 && i < len(dirs)-1 {
			write(t, mount+d+"/cgroup.subtree_control", "+cpu")
		}
	}
	if quota > 0 {
		us := strconv.FormatInt(quota.Microseconds(), 10)
		if v1 {
			write(t, mount+path+"/cpu.cfs_quota_us", us)
		} else {
			write(t, mount+path+"/cpu.max", us+" 100000")
		}
	}
	write(t, mount+path+"/cgroup.procs", strconv.Itoa(pid))
	return uid, path, pid
}

func write(t *testing.T, path, value string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

func TestCheckCPUThrottled(t *testing.T) {
	testenv.OnlyInTestAll(t)
	uid, path, pid := cpuCgroup(t, 5*time.Millisecond)
	check := CheckCPUThrottled(host())
	const want = `exhausted its limit of 50m \(5ms in each 100ms\) in \d+ of \d+ periods`
	for name, v := range map[string]map[string]string{
		"cgroup":             {"cgroup": path},
		"a slash at its end": {"cgroup": path + "/"},
		"pod":                {"podUID": uid},
		"process":            {"pid": strconv.Itoa(pid)},
		"a high threshold":   {"cgroup": path, "threshold": "50"},
	} {
		t.Run(name, func(t *testing.T) {
			v["window"] = "1s"
			out := confirm(t, check, v, "CPUThrottled", want)
			wantResults(t, out, map[string]string{"throttledCgroup": "^" + path + "$", "quota": "^5ms$", "period": "^100ms$"})
		})
	}
	fail(t, check, map[string]string{"pid": strconv.Itoa(pid), "startTime": "1s"}, "its PID was reused")
	fail(t, check, nil, "is required")
	fail(t, check, map[string]string{"cgroup": "/kernosis-none"}, "no such file")
	fail(t, check, map[string]string{"podUID": "none"}, "no process of pod none")
}

func TestCheckCPUNotThrottled(t *testing.T) {
	_, path, _ := cpuCgroup(t, 0)
	refute(t, CheckCPUThrottled(host()), map[string]string{"cgroup": path, "window": "100ms"}, "CPUNotThrottled", "no cgroup has a CPU limit; 3 cgroups")
}

func TestNetThrottleText(t *testing.T) {
	l := hostfs.CgroupCPULimit{Quota: 20 * time.Millisecond, Period: 100 * time.Millisecond}
	for want, tr := range map[string]throttle{
		"no cgroup has a CPU limit":                                     {},
		"cgroup /a, limit 200m (20ms in each 100ms), did not run in 2s": {path: "/a", limit: l, window: 2 * time.Second},
		"cgroup /a exhausted its limit of 200m (20ms in each 100ms) in 18 of 20 periods (90 %) in 2s, and was throttled for 1.6s": {path: "/a", limit: l, window: 2 * time.Second, periods: 20, throttled: 18, waited: 1600 * time.Millisecond},
	} {
		if got := tr.String(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// A limit that can't be read is not refuted.
func TestCheckCPUThrottledWithoutALimit(t *testing.T) {
	files := map[string]string{
		"/proc/1/mountinfo":               "20 1 0:26 / /sys/fs/cgroup rw - cgroup2 none rw\n",
		"/sys/fs/cgroup/a/cpu.stat":       "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
		"/sys/fs/cgroup/a/cpu.max":        "max 100000\n",
		"/sys/fs/cgroup/a/b/cpu.stat":     "nr_periods 9\nnr_throttled 0\nthrottled_usec 0\n",
		"/sys/fs/cgroup/a/b/cpu.max":      "x 100000\n",
		"/sys/fs/cgroup/a/b/cgroup.procs": "",
	}
	v := map[string]string{"cgroup": "/a/b", "window": "1ms"}
	fail(t, CheckCPUThrottled(operationtest.HostOf(t, files)), v, "no cgroup has a CPU limit; .*cpu.max")
	files["/sys/fs/cgroup/a/b/cpu.max"] = "max 100000\n"
	refute(t, CheckCPUThrottled(operationtest.HostOf(t, files)), v, "CPUNotThrottled", "no cgroup has a CPU limit; 2 cgroups examined")
}
