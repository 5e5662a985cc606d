package node

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/operationtest"
)

func TestKernelFactsOfThisMachine(t *testing.T) {
	out, kept := operationtest.Succeed(t, KernelFacts(operationtest.RealHost()), nil)
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	if r := out.Results; r["release"] != unix.ByteSliceToString(name.Release[:]) || r["uptime"] == "" || r["load1"] == "" || r["tainted"] == "" || r["commandLine"] == "" || !strings.Contains(r["settings"], "vm.swappiness=") {
		t.Errorf("%v", r)
	}
	if text := kept.Files["kernel.txt"]; !strings.Contains(text, "kernel.printk=") || !strings.Contains(text, "release "+out.Results["release"]) {
		t.Errorf("kernel.txt: %s", text)
	}
}

func TestKernelFactsOfAnotherNode(t *testing.T) {
	h := operationtest.HostOf(t, map[string]string{
		"/proc/sys/kernel/osrelease": "5.10.0-33-amd64\n", "/proc/sys/kernel/tainted": "12801\n", "/proc/cmdline": "quiet\x1b mitigations=off rd.iscsi.password=hunter2\n",
		"/proc/modules": "nvidia 56713216 1 - Live 0xffffffffc0000000 (POE)\next4 1000 2 mbcache,jbd2, Live 0x0\n", "/proc/loadavg": "40.00 20.00 1.00 3/30000 9\n",
		"/proc/sys/kernel/pid_max": "32768\n", "/proc/sys/kernel/threads-max": "100000\n", "/proc/sys/fs/file-nr": "99\t0\t100\n",
		"/proc/sys/net/netfilter/nf_conntrack_count": "10\n", "/proc/sys/net/netfilter/nf_conntrack_max": "100\n",
		"/proc/pressure/io": "some avg10=80.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=79.50 avg60=0.00 avg300=0.00 total=0\n",
	})
	out, kept := operationtest.Succeed(t, KernelFacts(h), nil)
	if text := kept.Files["kernel.txt"]; strings.Contains(text, "hunter2") {
		t.Errorf("kernel.txt: %s", text)
	}
	for key, want := range map[string]string{
		"tainted": "12801", "taint": "P proprietary module, W warning, O out-of-tree module, E unsigned module", "taintingModules": "nvidia(POE)", "modules": "2",
		"commandLine": `quiet\x1b mitigations=off rd.iscsi.password=[redacted]`, "nearlyFull": "kernel.pid_max 30000 of 32768, fs.file-max 99 of 100",
		"ioPressure10": "80.00", "ioPressureFull10": "79.50", "cpuPressure10": "", "load1": "40.00",
	} {
		if out.Results[key] != want {
			t.Errorf("%s is %q, want %q", key, out.Results[key], want)
		}
	}
	if _, _, err := operationtest.Perform(t, KernelFacts(operationtest.HostOf(t, nil)), nil); err == nil {
		t.Error("a node without /proc")
	}
}
