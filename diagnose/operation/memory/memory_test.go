package memory

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/operationtest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// memoryChild is a process in its own memory cgroup with a limit.
type memoryChild struct {
	t     *testing.T
	group string // path in the hierarchy
	pid   int
	stdin io.Writer
	reply *bufio.Scanner
}

func newMemoryChild(t *testing.T, limit uint64) *memoryChild {
	t.Helper()
	operationtest.NeedRoot(t)
	layout, err := operationtest.RealHost().FS.CgroupLayout()
	if err != nil {
		t.Fatal(err)
	}
	mount, file := layout.Controllers["memory"], "memory.limit_in_bytes"
	if mount == "" {
		mount, file = layout.Unified, "memory.max"
		b, _ := os.ReadFile(filepath.Join(mount, "cgroup.subtree_control"))
		if mount == "" || !strings.Contains(string(b), "memory") {
			t.Skip("no memory cgroups can be made here")
		}
	}
	c := &memoryChild{t: t, group: "/kernosis-operation-" + strconv.Itoa(os.Getpid())}
	dir := mount + c.group
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		testenv.Until(t, "the cgroup can be removed", 20*time.Second, func() bool { return os.Remove(dir) == nil })
	})
	if err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatUint(limit, 10)), 0); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The shell moves itself, so that all of the child's memory is charged to the cgroup.
	cmd := exec.Command("sh", "-c", `echo $$ >"$1" && exec "$2"`, "sh", filepath.Join(dir, "cgroup.procs"), self)
	cmd.Env = append(os.Environ(), growerEnv+"=1", "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	c.pid, c.stdin, c.reply = cmd.Process.Pid, stdin, bufio.NewScanner(stdout)
	c.ask("rate", 0) // it has started, and allocates nothing more by itself
	return c
}

// ask sends a command to the child, and waits until it is done.
func (c *memoryChild) ask(what string, bytes int) {
	c.t.Helper()
	fmt.Fprintf(c.stdin, "%s %d\n", what, bytes)
	if !c.reply.Scan() {
		c.t.Fatal("the child has ended")
	}
}

func between(t *testing.T, what string, n, low, high int64) {
	t.Helper()
	if n < low || n > high {
		t.Errorf("%s is %d, want %d to %d", what, n, low, high)
	}
}

func TestMemoryOfACgroup(t *testing.T) {
	testenv.OnlyInTestAll(t)
	const mib, limit = 1 << 20, 128 << 20
	c := newMemoryChild(t, limit)
	h, pid := operationtest.RealHost(), strconv.Itoa(c.pid)
	// The child is this binary, which is large with the race detector.
	before, _ := operationtest.Succeed(t, CgroupMemory(h), map[string]string{"cgroup": c.group, "window": "100ms"})
	c.ask("take", 20*mib)

	out, _ := operationtest.Succeed(t, CgroupMemory(h), map[string]string{"cgroup": c.group, "window": "100ms"})
	t.Log(out.Results)
	between(t, "more anonymous memory", operationtest.Number(t, out, "anonBytes")-operationtest.Number(t, before, "anonBytes"), 19*mib, 30*mib)
	between(t, "more held memory", operationtest.Number(t, out, "heldBytes")-operationtest.Number(t, before, "heldBytes"), 19*mib, 30*mib)
	between(t, "growth of a quiet process", operationtest.Number(t, out, "anonGrowthBytes"), -mib, mib)
	if r := out.Results; r["limitBytes"] != strconv.Itoa(limit) || r["limitCgroup"] != c.group || r["topPID"] != pid || r["processes"] != "1" || r["oomKills"] != "0" || r["owner"] != "cgroup "+c.group {
		t.Errorf("%v", r)
	}
	leak := CheckMemoryLeak(h)
	quick := func(more ...string) map[string]string {
		p := map[string]string{"pid": pid, "window": "600ms"}
		for i := 0; i < len(more); i += 2 {
			p[more[i]] = more[i+1]
		}
		return p
	}
	if no := operationtest.Refuse(t, leak, quick()); no.Reason != "MemoryDoesNotGrow" {
		t.Errorf("%+v", no)
	}
	if no := operationtest.Refuse(t, CheckLimitTooLow(h), quick()); no.Reason != "LimitNotReached" {
		t.Errorf("%+v", no)
	}

	// 10 MiB per second, as far as the machine keeps up.
	c.ask("rate", 10*mib)
	out, _ = operationtest.Succeed(t, CgroupMemory(h), map[string]string{"pid": pid, "window": "500ms"})
	window, err := time.ParseDuration(out.Results["window"]) // at least 500 ms
	if err != nil {
		t.Fatal(err)
	}
	between(t, "growth within "+window.String(), operationtest.Number(t, out, "anonGrowthBytes"), 1*mib, int64(16*mib*window.Seconds()))
	if r := out.Results; r["growingPID"] != pid || !strings.HasPrefix(r["grew"], "anon=+") || !strings.Contains(r["growingProcesses"], "MiB") {
		t.Errorf("%v", r)
	}
	out, _ = operationtest.Succeed(t, leak, quick())
	t.Logf("%+v %v", *out.Verdict, out.Results)
	between(t, "rate", operationtest.Number(t, out, "bytesPerSecond"), 3*mib, 14*mib)
	if v := out.Verdict; v.Reason != "MemoryLeakSuspected" || out.Results["growingPID"] != pid || out.Results["untilLimit"] == "" {
		t.Errorf("%+v %v", v, out.Results)
	}
	if no := operationtest.Refuse(t, CheckLimitTooLow(h), quick("nearPercent", "1", "steadyPercent", "1")); no.Reason != "MemoryGrows" {
		t.Errorf("%+v", no)
	}
	c.ask("rate", 0)

	// Memory is steady near the limit; whether it counts as near depends only on the threshold.
	out, _ = operationtest.Succeed(t, CheckLimitTooLow(h), quick("nearPercent", "20"))
	t.Logf("%+v %v", *out.Verdict, out.Results)
	if r := out.Results; out.Verdict.Reason != "LimitTooLow" || r["mainPID"] != pid || r["limitCgroup"] != c.group {
		t.Errorf("%+v %v", *out.Verdict, r)
	}

	for name, parameters := range map[string]map[string]string{
		"is gone":           {"cgroup": "/kernosis-no-such"},
		"not a path":        {"cgroup": "/../../etc"},
		"is required":       {},
		"not belong to pod": {"cgroup": c.group, "podUID": "0f6d5b2e-7c1a-4e0b-9a53-2f1c8e4d7b60"},
		"no memory cg":      {"podUID": "0f6d5b2e-7c1a-4e0b-9a53-2f1c8e4d7b60"},
	} {
		if _, _, err := operationtest.Perform(t, CgroupMemory(h), parameters); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A fixture pod with cgroup v2 as created by systemd.
func TestMemoryOfAPod(t *testing.T) {
	const (
		uid  = "0f6d5b2e-7c1a-4e0b-9a53-2f1c8e4d7b60"
		pod  = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f6d5b2e_7c1a_4e0b_9a53_2f1c8e4d7b60.slice"
		id   = "4c01db0b339c5a8f2ab62b4cd8d1a1f0a2d2e0a7a4f1c9b96ed8c1b7c3f0e2d5"
		ctr  = pod + "/cri-containerd-" + id + ".scope"
		root = "/sys/fs/cgroup"
	)
	stat := "anon 60000000\nfile 9000000\nkernel 5000000\nkernel_stack 100000\nslab_reclaimable 2000000\nslab_unreclaimable 1000000\nsock 4096\nshmem 1000000\ninactive_file 8000000\n"
	files := map[string]string{
		"/proc/1/mountinfo":        "20 1 0:26 / /sys/fs/cgroup rw - cgroup2 none rw\n",
		"/proc/meminfo":            "MemTotal: 1000000 kB\nMemAvailable: 40000 kB\nSwapTotal: 0 kB\n",
		"/proc/pressure/memory":    "some avg10=12.50 avg60=1.00 avg300=0.10 total=1\nfull avg10=3.25 avg60=0.00 avg300=0.00 total=1\n",
		root + "/cgroup.procs":     "",
		root + pod + "/memory.max": "100000000\n",
	}
	files[root+"/free/memory.max"] = "max\n"
	for _, g := range []string{pod, ctr, "/free"} {
		files[root+g+"/memory.current"] = "75000000\n"
		files[root+g+"/memory.stat"] = stat
		files[root+g+"/memory.events"] = "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n"
		files[root+g+"/memory.peak"] = "99000000\n"
		files[root+g+"/memory.swap.current"] = "0\n"
		files[root+g+"/memory.swap.max"] = "max\n"
		files[root+g+"/memory.high"] = "max\n"
		files[root+g+"/memory.pressure"] = files["/proc/pressure/memory"]
		files[root+g+"/cgroup.procs"] = ""
	}
	files[root+ctr+"/memory.max"] = "max\n"
	files[root+ctr+"/cgroup.procs"] = "811\n812\n"
	for pid, kb := range map[string]string{"811": "50000", "812": "8000"} {
		files["/proc/"+pid+"/stat"] = pid + " (pg" + pid + ") S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 250 0 0\n"
		files["/proc/"+pid+"/status"] = "Tgid:\t811\nUid:\t1\t1\t1\t1\nThreads:\t1\nVmSize:\t9 kB\nVmRSS:\t" + kb + " kB\nRssAnon:\t" + kb + " kB\n"
		files["/proc/"+pid+"/cgroup"] = "0::" + ctr + "/inner\n"
	}
	h := operationtest.HostOf(t, files)
	for _, parameters := range []map[string]string{
		{"podUID": uid}, {"podUID": uid, "containerID": id}, {"cgroup": ctr, "podUID": uid}, {"pid": "811"},
	} {
		parameters["window"] = "1ms"
		out, _ := operationtest.Succeed(t, CgroupMemory(h), parameters)
		r := out.Results
		for key, want := range map[string]string{
			"version": "v2", "usageBytes": "75000000", "workingSetBytes": "67000000", "peakBytes": "99000000", "effectiveLimitBytes": "100000000",
			"limitCgroup": pod, "anonBytes": "60000000", "kernelBytes": "5004096", "slabBytes": "3000000", "heldBytes": "64004096",
			"limitHits": "7", "oomEvents": "2", "oomKills": "1", "pressureSome10": "12.50", "pressureFull10": "3.25",
			"topProcesses": "pg811[811]=49MiB pg812[812]=7.8MiB", "podUID": uid, "anonGrowthBytes": "0", "grew": "",
		} {
			if r[key] != want {
				t.Errorf("%v: %s is %q, want %q", parameters, key, r[key], want)
			}
		}
	}
	if _, _, err := operationtest.Perform(t, CgroupMemory(h), map[string]string{"podUID": uid, "containerID": strings.Repeat("0", 64)}); err == nil {
		t.Error("a container that is not there")
	}

	// A process was killed, and the peak is at the limit.
	out, _ := operationtest.Succeed(t, CheckLimitTooLow(h), map[string]string{"cgroup": ctr, "window": "1ms"})
	t.Log(out.Verdict.Message)
	if r := out.Results; r["mainPID"] != "811" || r["heldPercent"] != "64" || out.Verdict.Reason != "LimitTooLow" {
		t.Errorf("%+v %v", *out.Verdict, r)
	}
	if no := operationtest.Refuse(t, CheckLimitTooLow(h), map[string]string{"cgroup": ctr, "window": "1ms", "mainPercent": "90"}); no.Reason != "NoMainProcess" {
		t.Errorf("%+v", no)
	}
	if no := operationtest.Refuse(t, CheckLimitTooLow(h), map[string]string{"cgroup": "/free", "window": "1ms"}); no.Reason != "NoMemoryLimit" {
		t.Errorf("%+v", no)
	}

	// Before Linux 5.19 the peak is unknown, but not that nothing was reclaimable.
	noPeak := maps.Clone(files)
	delete(noPeak, root+pod+"/memory.peak")
	out, _ = operationtest.Succeed(t, CheckLimitTooLow(operationtest.HostOf(t, noPeak)), map[string]string{"cgroup": ctr, "window": "1ms"})
	if out.Verdict.Reason != "LimitTooLow" || out.Results["peakBytes"] != "" {
		t.Errorf("%+v %v", *out.Verdict, out.Results)
	}
	noPeak[root+pod+"/memory.events"] = "max 0\noom 0\noom_kill 1\n" // killed because the node ran out of memory
	if no := operationtest.Refuse(t, CheckLimitTooLow(operationtest.HostOf(t, noPeak)), map[string]string{"cgroup": ctr, "window": "1ms"}); no.Reason != "LimitNotReached" {
		t.Errorf("%+v", no)
	}

	node := CheckNodeOvercommitted(h)
	out, _ = operationtest.Succeed(t, node, nil)
	t.Log(out.Verdict.Message)
	if r := out.Results; r["pods"] != "1" || r["podLimitsBytes"] != "100000000" || r["topPods"] != uid+"=64MiB" || r["pressureFull10"] != "3.25" {
		t.Errorf("%v", r)
	}
	if no := operationtest.Refuse(t, node, map[string]string{"minAvailablePercent": "3"}); no.Reason != "NodeHasMemory" {
		t.Errorf("%+v", no)
	}
	if no := operationtest.Refuse(t, node, map[string]string{"minAvailablePercent": "3", "limitCgroup": pod}); !strings.Contains(no.Message, "cgroup's limit") {
		t.Errorf("%+v", no)
	}
	out, _ = operationtest.Succeed(t, node, map[string]string{"minAvailablePercent": "0", "oomScope": "global"})
	if !strings.Contains(out.Verdict.Message, "node-wide") {
		t.Errorf("%+v", *out.Verdict)
	}
}

// The same with cgroup v1, as created by kubelet's cgroupfs driver.
func TestMemoryOfAPodOnV1(t *testing.T) {
	const (
		uid  = "0f6d5b2e-7c1a-4e0b-9a53-2f1c8e4d7b60"
		pod  = "/kubepods/burstable/pod" + uid
		root = "/sys/fs/cgroup/memory"
	)
	files := map[string]string{
		"/proc/1/mountinfo": "20 1 0:26 / /sys/fs/cgroup/memory rw - cgroup memory rw,memory\n", "/proc/meminfo": "MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n",
		root + pod + "/memory.usage_in_bytes": "75000000\n", root + pod + "/memory.limit_in_bytes": "80000000\n", root + pod + "/memory.max_usage_in_bytes": "80000000\n",
		root + pod + "/memory.memsw.limit_in_bytes": "9223372036854771712\n", root + pod + "/memory.memsw.usage_in_bytes": "76000000\n", root + pod + "/memory.failcnt": "12\n",
		root + pod + "/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", root + pod + "/memory.kmem.usage_in_bytes": "4000000\n",
		root + pod + "/memory.kmem.tcp.usage_in_bytes": "100\n", root + pod + "/cgroup.procs": "811\n",
		root + pod + "/memory.stat": "cache 1\nrss 1\ntotal_cache 5000000\ntotal_rss 70000000\ntotal_shmem 1000000\ntotal_inactive_file 3000000\ntotal_swap 900000\n",
		"/proc/811/stat":            "811 (pg) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 250 0 0\n",
		"/proc/811/status":          "Tgid:\t811\nUid:\t1\t1\t1\t1\nThreads:\t1\nVmSize:\t9 kB\nVmRSS:\t68000 kB\nRssAnon:\t68000 kB\n",
		"/proc/811/cgroup":          "8:memory:" + pod + "\n",
	}
	h := operationtest.HostOf(t, files)
	for _, parameters := range []map[string]string{{"podUID": uid}, {"pid": "811"}} {
		parameters["window"] = "0s"
		out, _ := operationtest.Succeed(t, CgroupMemory(h), parameters)
		for key, want := range map[string]string{
			"version": "v1", "limitBytes": "80000000", "workingSetBytes": "72000000", "anonBytes": "70000000", "heldBytes": "75000000", "kernelBytes": "4000000",
			"swapBytes": "900000", "swapLimitBytes": "", "limitHits": "12", "oomKills": "3", "slabBytes": "", "podUID": uid, "window": "", "grew": "",
		} {
			if out.Results[key] != want {
				t.Errorf("%v: %s is %q, want %q", parameters, key, out.Results[key], want)
			}
		}
	}
	out, _ := operationtest.Succeed(t, CheckLimitTooLow(h), map[string]string{"podUID": uid, "window": "1ms"})
	if !strings.HasPrefix(out.Verdict.Message, "72 MiB of the 76 MiB limit of "+pod) {
		t.Errorf("%s", out.Verdict.Message)
	}
	if no := operationtest.Refuse(t, CheckNodeOvercommitted(h), nil); !strings.HasSuffix(no.Message, "; memory of 1 pod: 69 MiB in use, limits 76 MiB, 0 without") {
		t.Errorf("%+v", no)
	}
}

func TestNodeOfThisMachine(t *testing.T) {
	no := operationtest.Refuse(t, CheckNodeOvercommitted(operationtest.RealHost()), map[string]string{"minAvailablePercent": "0"})
	t.Log(no.Message)
	out, _ := operationtest.Succeed(t, CheckNodeOvercommitted(operationtest.RealHost()), map[string]string{"minAvailablePercent": "100"})
	if operationtest.Number(t, out, "totalBytes") < 1<<20 || operationtest.Number(t, out, "availableBytes") == 0 {
		t.Errorf("%v", out.Results)
	}
}

func TestLargestFall(t *testing.T) {
	var samples []memorySample
	for _, anon := range []uint64{10, 20, 15, 30, 28} {
		s := memorySample{}
		s.use.Anon = anon
		samples = append(samples, s)
	}
	if got := largestFall(samples); got != 5 {
		t.Errorf("%d", got)
	}
}
