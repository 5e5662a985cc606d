package main

import (
	"regexp"
	"strings"

	"github.com/kernosis/kernosis/vmtest/kernel"
)

// A suite is a test binary and the tests of it to run in one machine.
type suite struct {
	name   string
	pkg    string   // its folder
	run    string   // the tests, as for -test.run; "" for all
	skip   string   // tests to leave out, as for -test.skip
	cgroup string   // the machine's cgroup version; "" for v2
	cpus   int      // of the machine; 0 for the value in vm.yaml
	load   []string // modules to load in addition to those in vm.yaml
	// server: the tests start etcd and kube-apiserver, which are packed into the machine. It gets
	// more memory for them.
	server bool
	// on reports whether the suite runs on a kernel. If it is nil, the suite runs on all except the
	// generic flavours, which differ from the cloud flavours in what is a module, and those of
	// other architectures, which are emulated and differ in the code that faults and variants
	// reach.
	on func(kernel.Kernel) bool
	// row returns the row of the table that a test belongs to. If ok is false, the test has no row of
	// its own but must not fail.
	row func(test string) (k key, ok bool)
	// skips is how many of the tests may be skipped at most. Those with a row of their own may only
	// be "n/a".
	skips int
}

// agentTests matches the tests of the agent with real faults, across stops and restarts.
const agentTests = "^Test(DiskErrorSet|HealthAndMetrics|HungTask|KillKeepsTargets|NewRulesReportWhatLasts|OneProblemOfRealKills|OOMKill|ProbeFailureSet|SIGTERM|SecondAgent|WithoutPrivilege)"

// suites returns the suites in the order of the table, longest first.
func suites() []suite {
	return []suite{
		// The memory of a freshly booted machine is exhausted 23 times in 25 s; after the other
		// faults this takes up to seven times as long, so it gets its own machine.
		{name: "faults", pkg: "vmtest", skip: "^TestOOMKill$/^global$", row: faultRow, on: cloud},
		{name: "faults, global OOM", pkg: "vmtest", run: "TestOOMKill/^global$", row: faultRow, on: cloud},
		{name: "faults on cgroup v1", pkg: "vmtest", run: "TestOOMKill", cgroup: "v1", row: faultRow},
		{name: "faults, ext4 a module", pkg: "vmtest", run: "TestFSError", row: faultRow, on: generic},
		// Among them is the only 5.10 with machine checks and pages that fail.
		{name: "hardware errors", pkg: "vmtest", run: "TestHWError", row: faultRow, on: generic},
		{name: "variants", pkg: "bpf", run: "TestEveryVariantAlone", row: variantRow, load: []string{"xfs"}, on: cloud},
		// These verdicts are covered by the faults above, without the agent; load tests are for
		// real machines.
		{name: "collector", pkg: "collector", skip: "^TestSockFail(Verdicts|Healthy)$", row: packageRow("collector, on the kernel"), skips: 4},
		// The variants have their own suite; costs are measured on real machines.
		{name: "bpf", pkg: "bpf", skip: "^(TestEveryVariantAlone|TestSockFailCost)$", row: packageRow("programs, rings and pins"), load: []string{"xfs", "zram num_devices=0"}, skips: 12},
		// On the kernel that keeps the most entries of a map away from other CPUs.
		{name: "64 CPUs", pkg: "bpf", run: "TestLRUMapsKeepWhatTheyDeclare", cpus: 64, row: packageRow("programs with 64 CPUs"),
			on: func(k kernel.Kernel) bool { return k.Name == "5.10" }},
		// The device of the agent's state is suspended, which needs the device mapper; a frozen
		// filesystem can be tested on any host. The server takes minutes to start under emulation.
		{name: "state disk", pkg: "cmd/kernosis", run: "TestTheStateDiskHangs/^dm-suspended$", server: true, row: packageRow("agent, its state disk suspended"),
			on: func(k kernel.Kernel) bool { return k.Name == "5.10" || k.Name == "newest" }},
		{name: "agent", pkg: "cmd/kernosis", run: agentTests, row: packageRow("agent, across kill -9"), load: []string{"xfs"}},
		{name: "hardened", pkg: "vmtest/hardened", run: "TestHardened", row: faultRow},
		{name: "panic", pkg: "vmtest/panic", run: "TestPanic", row: faultRow},
		{name: "inject", pkg: "cmd/kernosis/inject", row: packageRow("drills"), skips: 2},
	}
}

func generic(k kernel.Kernel) bool { return strings.HasSuffix(k.Name, "-generic") }

// cloud reports whether a kernel is a cloud flavour, of any architecture.
func cloud(k kernel.Kernel) bool { return !generic(k) }

func (s suite) runsOn(k kernel.Kernel) bool {
	if s.on == nil {
		return cloud(k) && k.Arch() == kernel.AMD64
	}
	return s.on(k)
}

// pattern returns the value of -test.run for one stem, or for all.
func (s suite) pattern(stem string) string {
	switch {
	case stem == "":
		return s.run
	case s.name == "variants":
		return s.run + "/^" + regexp.QuoteMeta(stem) + "$"
	case strings.HasPrefix(s.run, "^"): // a list of tests
		if !regexp.MustCompile("(?i)" + s.run).MatchString("Test" + stem) {
			return "" // no test of it matches
		}
	case s.run != "":
		if test, _, _ := strings.Cut(s.run, "/"); strings.EqualFold(test, "Test"+stem) {
			return s.run
		}
		return "" // no test of it matches
	}
	return "(?i)^Test" + regexp.QuoteMeta(stem)
}

// faultRow returns the row of a test such as TestOOMKill/memcg-v2.
func faultRow(test string) (key, bool) {
	name, fault, ok := strings.Cut(test, "/")
	return key{strings.ToLower(strings.TrimPrefix(name, "Test")), fault}, ok && !strings.Contains(fault, "/")
}

// variantRow returns the row of a test such as TestEveryVariantAlone/oomkill/victim_btf: one row
// per stem.
func variantRow(test string) (key, bool) {
	_, variant, ok := strings.Cut(test, "/")
	stem, _, _ := strings.Cut(variant, "/")
	return key{stem, "every variant loads and attaches"}, ok
}

// packageRow returns a row function with one row for all tests of a package.
func packageRow(name string) func(string) (key, bool) {
	return func(string) (key, bool) { return key{"all", name}, true }
}
