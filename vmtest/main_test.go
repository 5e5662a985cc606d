package vmtest

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// faults is how often each fault is provoked. It is prime, so that no batch, ring or threshold
// hides a lost one.
const faults = 23

func TestMain(m *testing.M) {
	if inject.RunChild(os.Args) {
		return
	}
	if len(os.Args) == 2 && os.Args[1] == poisonPage {
		if err := runPoisonPage(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := inMachine(); err != nil {
		// Not a failure, so that "go test ./..." succeeds elsewhere.
		fmt.Printf("skipped: %v; see make vmtest\n", err)
		return
	}
	// Parallel rows mostly wait for the agent. The command line may override this.
	if err := flag.Set("test.parallel", "32"); err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// inMachine returns an error unless these tests may run here: only in a machine whose first process
// is vmrun or vimto can they damage nothing of value.
func inMachine() error {
	comm, err := os.ReadFile("/proc/1/comm")
	if err != nil {
		return err
	}
	switch first := strings.TrimSpace(string(comm)); first {
	case "vmrun", "vimto":
		return nil
	default:
		return fmt.Errorf("these tests break the machine they run on, and this is none of vmrun's or vimto's (its first process is %s)", first)
	}
}

// startAgent starts an agent with only the rules for probes, because the kernel log reports the
// same faults.
func startAgent(t *testing.T, args ...string) *agenttest.Agent {
	t.Helper()
	return startShipped(t, append([]string{"--log", "none", "--shipped-rules", strings.Join(probeRules(), ",")}, args...)...)
}

// startShipped starts the agent with its shipped rules and waits until its sources work.
func startShipped(t *testing.T, args ...string) *agenttest.Agent {
	t.Helper()
	path, err := filepath.Abs("../bin/kernosis")
	if err != nil {
		t.Fatal(err)
	}
	a := agenttest.New(t, path, args...)
	a.Start()
	a.WaitSources(0)
	return a
}

// noLoss fails the test if the agent lost a record. Runs that the kernel skipped are only logged:
// kernels since 6.1 skip a program that another task on the CPU was preempted in, which no program
// can prevent (docs/kernel-quirks.md). The callers count what they provoked.
func noLoss(t *testing.T, entries []journal.Entry) {
	t.Helper()
	for _, ev := range agenttest.Events(entries, event.Lost) {
		if ev.Lost.Reason == "recursion" {
			t.Logf("skipped by the kernel: %+v", *ev.Lost)
			continue
		}
		t.Errorf("lost: %+v", *ev.Lost)
	}
}

// needConfig skips the test if the kernel is built without an option. Nothing else may cause "n/a"
// in the table.
func needConfig(t *testing.T, option string) {
	t.Helper()
	set, err := kernelConfig(option)
	if err != nil {
		t.Fatal(err)
	}
	if !set {
		t.Skipf("n/a: %s is not set", option)
	}
}

// module loads a module and its dependencies; option is the kernel option that provides it, built
// in or as a module.
func module(t *testing.T, option, name string, params ...string) {
	t.Helper()
	needConfig(t, option)
	command(t, "modprobe", append([]string{name}, params...)...)
}

// atEnd calls fn at the end of the test, and fails the test if fn fails.
func atEnd(t *testing.T, fn func() error) {
	t.Cleanup(func() {
		if err := fn(); err != nil {
			t.Error(err)
		}
	})
}

// command runs a program and returns its output.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// kernelConfig reports whether an option is y or m in the running kernel.
func kernelConfig(option string) (bool, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return false, err
	}
	f, err := os.Open("/boot/config-" + unix.ByteSliceToString(uts.Release[:]))
	if err != nil {
		return false, err
	}
	defer f.Close()
	found := false
	for s := bufio.NewScanner(f); s.Scan(); {
		found = true
		if v, ok := strings.CutPrefix(s.Text(), option+"="); ok && (v == "y" || v == "m") {
			return true, nil
		}
	}
	if !found {
		return false, errors.New("the kernel's configuration is empty")
	}
	return false, nil
}

// kernelTypes opens the running kernel's BTF.
func kernelTypes(t *testing.T) *bpf.Kernel {
	t.Helper()
	k, err := bpf.OpenKernel()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// probeRules returns the files of the shipped rules for events of probes.
func probeRules() []string {
	return []string{"diskio", "fserror", "hungtask", "hwerror", "oomkill", "sockfail", "source"}
}
