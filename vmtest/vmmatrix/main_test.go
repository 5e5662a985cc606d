package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/vmtest/kernel"
)

func TestPlan(t *testing.T) {
	kernels := []kernel.Kernel{{Name: "6.1"}, {Name: "5.10-generic"}}
	for _, c := range []struct {
		stem string
		want []string
	}{
		{"", []string{
			"6.1 faults ", "6.1 faults, global OOM TestOOMKill/^global$", "6.1 faults on cgroup v1 TestOOMKill", "6.1 variants TestEveryVariantAlone", "6.1 collector ", "6.1 bpf ",
			"6.1 agent " + agentTests, "6.1 hardened TestHardened", "6.1 panic TestPanic", "6.1 inject ", "5.10-generic faults, ext4 a module TestFSError",
			"5.10-generic hardware errors TestHWError",
		}},
		{"oomkill", []string{
			"6.1 faults (?i)^Testoomkill", "6.1 faults, global OOM TestOOMKill/^global$", "6.1 faults on cgroup v1 TestOOMKill", "6.1 variants TestEveryVariantAlone/^oomkill$",
			"6.1 collector (?i)^Testoomkill", "6.1 bpf (?i)^Testoomkill", "6.1 agent (?i)^Testoomkill", "6.1 inject (?i)^Testoomkill",
		}},
		{"sockfail", []string{
			"6.1 faults (?i)^Testsockfail", "6.1 variants TestEveryVariantAlone/^sockfail$", "6.1 collector (?i)^Testsockfail", "6.1 bpf (?i)^Testsockfail", "6.1 inject (?i)^Testsockfail",
		}},
	} {
		var got []string
		for _, j := range (command{stem: c.stem}).plan(kernels) {
			got = append(got, j.kernel.Name+" "+j.suite.name+" "+j.run)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("stem %q:\n%s\nwant\n%s", c.stem, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

func TestBadArguments(t *testing.T) {
	t.Chdir("../..") // where it is normally started
	for want, args := range map[string][]string{
		"usage:":                  nil,
		"no such command":         {"runn"},
		"not defined":             {"run", "-kernle", "6.1"},
		"unexpected \"6.1\"":      {"run", "6.1"},
		"no kernel \"4.4\"":       {"run", "-kernel", "4.4"},
		"name one kernel":         {"mutants"},
		"nothing to run for stem": {"run", "-kernel", "5.10-generic", "-stem", "nonsense"},
	} {
		if c, err := parse(args, io.Discard); err == nil {
			kernels, err := c.chosen(t.TempDir())
			if err == nil {
				err = c.check(kernels)
			}
			if use := usageError(""); !errors.As(err, &use) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", args, err, want)
			}
		} else if use := usageError(""); !errors.As(err, &use) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// Every patch still applies: one that does not would prove nothing.
func TestMutantsApply(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	all, err := readMutants(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		cmd := exec.CommandContext(t.Context(), "git", "apply", "--check", m.patch)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", m.name, err, out)
		}
	}
	stems := map[string]bool{}
	for _, m := range all {
		stems[m.stem] = true
	}
	for _, stem := range []string{"oomkill", "hungtask", "diskio", "fserror", "hwerror", "sockfail"} {
		if !stems[stem] {
			t.Errorf("no mutant of %s", stem)
		}
	}
}

func TestBadMutants(t *testing.T) {
	for text, want := range map[string]string{
		"Stem: a\n\ndiff":           "without Stem or Right",
		"Stem: a\nWrong: b\n\ndiff": "want Stem or Right",
	} {
		root := t.TempDir()
		dir := filepath.Join(root, mutantsDir)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "a.patch"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := readMutants(root); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := readMutants(t.TempDir()); err == nil {
		t.Error("no mutants at all is no error")
	}
}

// Only a log of a machine whose tests all passed is reused; other jobs are run again.
func TestReadLog(t *testing.T) {
	w := workshop{root: "../..", dir: t.TempDir()}
	all := suites()
	j := job{suite: all[slices.IndexFunc(all, func(s suite) bool { return s.name == "inject" })], kernel: kernel.Kernel{Name: "6.1"}, release: "6.1.0-9"}
	const (
		passed = "=== RUN   TestOOM\n    oom_test.go:3: killed\n--- PASS: TestOOM (0.10s)\n"
		failed = "=== RUN   TestHang\n    hang_test.go:7: no hang\n--- FAIL: TestHang (1.00s)\n"
	)
	other := j
	other.release = "6.1.0-8"
	for _, c := range []struct {
		log   string
		whole bool
		lines int
	}{
		{j.head() + passed + "PASS\n", true, 1},
		{j.head() + passed + failed + "FAIL\n", false, 1},
		{j.head() + passed + "=== RUN   TestHang\n", false, 1},
		{j.head() + passed, false, 1},
		{other.head() + passed + "PASS\n", false, 0},
		{passed + "PASS\n", false, 0},
		{"", false, 0},
	} {
		if err := os.MkdirAll(filepath.Dir(w.log(j)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(w.log(j), []byte(c.log), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := w.read(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		if out.results != nil {
			lines = len(out.order)
		}
		if out.whole() != c.whole || lines != c.lines {
			t.Errorf("%q: whole %t with %d lines, want %t with %d", c.log, out.whole(), lines, c.whole, c.lines)
		}
	}
	if err := os.Remove(w.log(j)); err != nil {
		t.Fatal(err)
	}
	if out, err := w.read(t.Context(), j); err != nil || out.whole() {
		t.Errorf("without a log: %+v, %v", out, err)
	}
}
