package main

import (
	"regexp"
	"strings"

	"github.com/kernosis/kernosis/vmtest/guest"
	"github.com/kernosis/kernosis/vmtest/kernel"
)

// A suite is a test binary and what of it runs in one machine.
type suite struct {
	name   string
	pkg    string   // its folder
	run    string   // the tests, as -test.run takes them; "" for all
	skip   string   // tests that are left out, as -test.skip takes them
	cgroup string   // the machine's control groups
	cpus   int      // of the machine; 0: vm.yaml's
	load   []string // modules to load besides vm.yaml's
	// server: its tests start etcd and kube-apiserver, which are packed into the machine; it
	// has more memory for them.
	server bool
	// on says which kernels the suite is for; nil: all but the generic flavours,
	// which differ from the cloud ones in what is a module, and but those of other
	// architectures, which are emulated and differ in code that faults and variants reach.
	on func(kernel.Kernel) bool
	// row names the line of the table that a test belongs to, by its stem and its
	// fault; false: the test has no line of its own and must merely not fail.
	row func(test string) (stem, fault string, ok bool)
	// skips is how many of the tests may be skipped at most. Those with a line of
	// their own may only be "n/a".
	skips int
}

// agentTests are of what the agent does with real faults, across its ends and starts.
const agentTests = "^Test(DiskErrorSet|HealthAndMetrics|HungTask|KillKeepsTargets|NewRulesReportWhatLasts|OneProblemOfRealKills|OOMKill|ProbeFailureSet|SIGTERM|SecondAgent|WithoutPrivilege)"

// suites are in the order of the table, and the longest first.
func suites() []suite {
	return []suite{
		// A machine that has just booted runs out of memory 23 times in 25 s; one that has
		// been through the other faults takes up to seven times as long.
		{name: "faults", pkg: "vmtest", skip: "^TestOOMKill$/^global$", cgroup: guest.CgroupV2, row: faultRow, on: cloud},
		{name: "faults, global OOM", pkg: "vmtest", run: "TestOOMKill/^global$", cgroup: guest.CgroupV2, row: faultRow, on: cloud},
		{name: "faults on cgroup v1", pkg: "vmtest", run: "TestOOMKill", cgroup: guest.CgroupV1, row: faultRow},
		{name: "faults, ext4 a module", pkg: "vmtest", run: "TestFSError", cgroup: guest.CgroupV2, row: faultRow, on: generic},
		{name: "variants", pkg: "bpf", run: "TestEveryVariantAlone", cgroup: guest.CgroupV2, row: variantRow, load: []string{"xfs"}, on: cloud},
		// Its verdicts are those of the faults above, without the agent around it; load is
		// for real machines.
		{name: "collector", pkg: "collector", skip: "^TestSockFail(Verdicts|Healthy)$", cgroup: guest.CgroupV2, row: packageRow("collector, on the kernel"), skips: 4},
		// Its variants are a suite of their own; costs are measured on real machines.
		{name: "bpf", pkg: "bpf", skip: "^(TestEveryVariantAlone|TestSockFailCost)$", cgroup: guest.CgroupV2, row: packageRow("programs, rings and pins"), load: []string{"xfs", "zram num_devices=0"}, skips: 12},
		// With the kernel that keeps the most of a map from other CPUs.
		{name: "64 CPUs", pkg: "bpf", run: "TestLRUMapsKeepWhatTheyDeclare", cgroup: guest.CgroupV2, cpus: 64, row: packageRow("programs with 64 CPUs"),
			on: func(k kernel.Kernel) bool { return k.Name == "5.10" }},
		// The disk of the agent's state as a device that is suspended, which needs the device
		// mapper; a frozen filesystem is every host's. The server takes minutes to start under emulation.
		{name: "state disk", pkg: "cmd/kernosis", run: "TestTheStateDiskHangs/^dm-suspended$", cgroup: guest.CgroupV2, server: true, row: packageRow("agent, its state disk suspended"),
			on: func(k kernel.Kernel) bool { return k.Name == "5.10" || k.Name == "newest" }},
		{name: "agent", pkg: "cmd/kernosis", run: agentTests, cgroup: guest.CgroupV2, row: packageRow("agent, across kill -9"), load: []string{"xfs"}},
		{name: "hardened", pkg: "vmtest/hardened", run: "TestHardened", cgroup: guest.CgroupV2, row: faultRow},
		{name: "inject", pkg: "cmd/kernosis/inject", cgroup: guest.CgroupV2, row: packageRow("drills"), skips: 2},
	}
}

func generic(k kernel.Kernel) bool { return strings.HasSuffix(k.Name, "-generic") }

// cloud is of any architecture.
func cloud(k kernel.Kernel) bool { return !generic(k) }

func (s suite) runsOn(k kernel.Kernel) bool {
	if s.on == nil {
		return cloud(k) && k.Arch() == kernel.AMD64
	}
	return s.on(k)
}

// pattern is -test.run for one stem, or for all.
func (s suite) pattern(stem string) string {
	switch {
	case stem == "":
		return s.run
	case s.name == "variants":
		return s.run + "/^" + regexp.QuoteMeta(stem) + "$"
	case strings.HasPrefix(s.run, "^"): // a list
		if !regexp.MustCompile("(?i)" + s.run).MatchString("Test" + stem) {
			return "" // nothing of it
		}
		return "(?i)^Test" + regexp.QuoteMeta(stem)
	case s.run != "":
		if test, _, _ := strings.Cut(s.run, "/"); strings.EqualFold(test, "Test"+stem) {
			return s.run
		}
		return "" // nothing of it
	default:
		return "(?i)^Test" + regexp.QuoteMeta(stem)
	}
}

// faultRow: TestOOMKill/memcg-v2.
func faultRow(test string) (stem, fault string, ok bool) {
	parts := strings.Split(test, "/")
	if len(parts) != 2 {
		return "", "", false
	}
	return strings.ToLower(strings.TrimPrefix(parts[0], "Test")), parts[1], true
}

// variantRow: TestEveryVariantAlone/oomkill/victim_btf; one line a stem.
func variantRow(test string) (stem, fault string, ok bool) {
	parts := strings.Split(test, "/")
	if len(parts) < 2 {
		return "", "", false
	}
	return parts[1], "every variant loads and attaches", true
}

// packageRow has one line for everything of a package.
func packageRow(name string) func(string) (string, string, bool) {
	return func(string) (string, string, bool) { return "all", name, true }
}
