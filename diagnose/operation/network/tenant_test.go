package network

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/operation/memory"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/operationtest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Each test tries to get information about another pod from a built-in that is safe for tenants,
// bound to one pod by package tenancy, or with the inputs it would get if that failed.

func TestATenantsMemoryIsThatOfThePod(t *testing.T) {
	const (
		own, other = "0f6d5b2e-7c1a-4e0b-9a53-2f1c8e4d7b60", "11111111-7c1a-4e0b-9a53-2f1c8e4d7b60"
		top        = "/kubepods/burstable"
		root       = "/sys/fs/cgroup"
	)
	id := strings.Repeat("4c", 32)
	files := map[string]string{
		"/proc/1/mountinfo":            "20 1 0:26 / /sys/fs/cgroup rw - cgroup2 none rw\n",
		root + "/cgroup.procs":         "",
		root + top + "/memory.max":     "700000000\n",
		"/proc/811/stat":               "811 (own) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 250 0 0\n",
		"/proc/811/status":             "Tgid:\t811\nUid:\t1\t1\t1\t1\nThreads:\t1\nVmSize:\t9 kB\nVmRSS:\t50 kB\nRssAnon:\t50 kB\n",
		"/proc/811/cgroup":             "0::" + top + "/pod" + own + "\n",
		"/proc/911/stat":               "911 (secret) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 250 0 0\n",
		"/proc/911/status":             "Tgid:\t911\nUid:\t1\t1\t1\t1\nThreads:\t1\nVmSize:\t9 kB\nVmRSS:\t90 kB\nRssAnon:\t90 kB\n",
		"/proc/911/cgroup":             "0::" + top + "/pod" + other + "/" + id + "\n",
		root + top + "/memory.current": "99\n",
		root + top + "/memory.stat":    "anon 99\n",
		root + top + "/memory.events":  "max 0\n",
		root + top + "/cgroup.procs":   "",
	}
	for uid, pid := range map[string]string{own: "811", other: "911"} {
		for _, group := range []string{top + "/pod" + uid, top + "/pod" + uid + "/" + id} {
			files[root+group+"/memory.current"] = "7500" + pid + "\n"
			files[root+group+"/memory.stat"] = "anon 6000\n"
			files[root+group+"/memory.events"] = "max 7\n"
			files[root+group+"/memory.max"] = "max\n"
			files[root+group+"/cgroup.procs"] = ""
		}
		files[root+top+"/pod"+uid+"/cgroup.procs"] = pid + "\n"
	}
	delete(files, root+top+"/pod"+own+"/"+id+"/memory.current") // that container belongs to the other pod
	b := memory.CgroupMemory(operationtest.HostOf(t, files))
	out, _ := operationtest.Succeed(t, b, map[string]string{"podUID": own, "window": "0s"})
	r := out.Results
	if r["usageBytes"] != "7500811" || r["processes"] != "1" || !strings.HasPrefix(r["topProcesses"], "own[811]") || r["podUID"] != own {
		t.Errorf("%v", r)
	}
	// Limits above the pod are the node's, or shared with its neighbours.
	if r["effectiveLimitBytes"] != "" || r["limitCgroup"] != "" {
		t.Errorf("limit of a group above the pod: %v", r)
	}
	if out, _ = operationtest.Succeed(t, b, map[string]string{"pid": "811", "window": "0s"}); out.Results["effectiveLimitBytes"] != "700000000" {
		t.Errorf("who is not bound to the pod: %v", out.Results)
	}
	for name, p := range map[string]map[string]string{
		"cgroup":        {"cgroup": top + "/pod" + other},
		"up and down":   {"cgroup": top + "/pod" + own + "/../pod" + other},
		"above":         {"cgroup": top},
		"process":       {"pid": "911"},
		"none, process": {"cgroup": "/none", "pid": "911"},
	} {
		p["podUID"], p["window"] = own, "0s"
		if out, _, err := operationtest.Perform(t, b, p); err == nil || !matches(err.Error(), "does not belong to pod "+own+"|not a path below its tree") {
			t.Errorf("%s: %v %v", name, out.Results, err)
		}
	}
	if out, _, err := operationtest.Perform(t, b, map[string]string{"podUID": own, "containerID": strings.Repeat("5d", 32), "window": "0s"}); err == nil {
		t.Errorf("a container of another pod: %v", out.Results)
	}
}

// intruder starts a process in a namespace. It belongs to no pod.
func intruder(t *testing.T, n *netlab.Net) (pid int) {
	t.Helper()
	at := fmt.Sprintf("--net=/proc/%d/ns/net", holder(n))
	cmd := exec.Command("nsenter", at, "sleep", "120")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	h := host()
	testenv.Until(t, "a process in the namespace", 10*time.Second, func() bool {
		inode, err := h.FS.NetNS(cmd.Process.Pid)
		return err == nil && inode == n.Inode
	})
	return cmd.Process.Pid
}

func TestATenantsSocketsAreThoseOfThePod(t *testing.T) {
	prober, target := netlab.PairIn(t, 33)
	uid, _ := podOf(t, target)
	_, cgroup := podOf(t, prober)
	target.Serve("10.97.33.2:81", netlab.Echo)
	prober.Serve("10.97.33.1:7001", netlab.Echo)
	b := Sockets(host())
	for name, p := range map[string]map[string]string{
		"namespace": {"netns": inode(prober)},
		"process":   {"pid": strconv.Itoa(holder(prober))},
		"cgroup":    {"cgroup": cgroup},
	} {
		p["podUID"], p["window"] = uid, "0s"
		out, files := must(t, b, p)
		if all := fmt.Sprint(out.Results) + files.Read(t, "sockets.txt"); strings.Contains(all, "7001") || !strings.Contains(all, ":81") {
			t.Errorf("%s: %s", name, all)
		}
	}
	fail(t, b, map[string]string{"podUID": uid, "address": "10.97.33.1", "port": "7001"}, "is not an address of pod")

	// The sockets belong to this process, which is not in the pod, so it is not named.
	out, files := must(t, b, map[string]string{"podUID": uid, "port": "81", "window": "0s"})
	if all := fmt.Sprint(out.Results) + files.Read(t, "sockets.txt"); strings.Contains(all, "["+strconv.Itoa(os.Getpid())+"]") {
		t.Errorf("a process that is not in the pod is named: %s", all)
	}
	wantResults(t, out, map[string]string{"listening": "^true$", "ownerPID": "^0$|^$"})

	// A namespace that a process outside the pod shares has sockets of others, as on the node's
	// network.
	intruder(t, target)
	out, files = must(t, b, map[string]string{"podUID": uid, "window": "0s"})
	wantResults(t, out, map[string]string{"listeners": "^$", "overflows": "^$", "drops": "^$", "note": "shares its network.*sockets of the shared namespace"})
	if text := files.Read(t, "sockets.txt"); strings.Contains(text, ":81") {
		t.Errorf("%s", text)
	}
}

func TestATenantsProbeGoesToThePod(t *testing.T) {
	node, pod := netlab.PairIn(t, 34)
	uid, _ := podOf(t, pod)
	h := labHost(t, node, pod)
	b := ReProbe(h)
	pod.Serve("10.97.34.2:80", netlab.Echo)
	node.Serve("10.97.34.1:80", netlab.Echo)
	at := func(address string) map[string]string {
		return map[string]string{"podUID": uid, "address": address, "port": "80", "timeout": "10s"}
	}
	out, _ := must(t, b, at("10.97.34.2"))
	wantResults(t, out, map[string]string{"succeeded": "^true$", "probed": "^10.97.34.2:80$"})
	fail(t, b, at("10.97.34.1"), "is not an address of pod")
	fail(t, b, at("169.254.169.254"), "is not an address of pod|can't be reached")
	// What package tenancy passes if the pod has no address.
	fail(t, b, at("0.0.0.0"), "can't be reached from the node's network namespace")
	p := at("10.97.34.1")
	p["netns"], p["pid"] = inode(node), strconv.Itoa(holder(node))
	fail(t, b, p, "is not an address of pod")

	pid := strconv.Itoa(intruder(t, pod))
	if err := os.Symlink("/proc/"+pid, h.FS.Path("/proc/"+pid)); err != nil {
		t.Fatal(err)
	}
	fail(t, b, at("10.97.34.2"), "shares its network with processes outside of it")
}
