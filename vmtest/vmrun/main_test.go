package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/kernel"
	"github.com/kernosis/kernosis/vmtest/machine"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// This binary is also the machine's first process and the program in it.
func TestMain(m *testing.M) {
	if os.Getpid() == 1 {
		machine.Init()
	}
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], payload) {
		os.Exit(inMachine(strings.TrimPrefix(os.Args[1], payload)))
	}
	os.Exit(m.Run())
}

const payload = "payload:"

// inMachine runs as the machine's program, and returns its exit code.
func inMachine(what string) int {
	switch what {
	case "look":
		comm, _ := os.ReadFile("/proc/1/comm")
		dir, _ := os.Getwd()
		data, _ := os.ReadFile("testdata/told")
		_, memory := os.Stat("/sys/fs/cgroup/memory.pressure")
		_, controllers := os.Stat("/sys/fs/cgroup/cgroup.controllers")
		fmt.Printf("first process %s", comm)
		fmt.Printf("directory %s\ntestdata %s", dir, data)
		fmt.Printf("environment %q %q\n", os.Getenv("KERNOSIS_TEST_TOLD"), os.Getenv("HOSTNAME_OF_THE_HOST"))
		fmt.Printf("cgroup v2 %v\n", memory == nil || controllers == nil)
		return 0
	case "exit":
		fmt.Println("goes")
		return 7
	case "signal":
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	case "orphan": // an orphan outlives the program and must not keep the machine running
		p, err := os.StartProcess("/proc/self/exe", []string{"orphan", payload + "hang"}, &os.ProcAttr{})
		fmt.Println(p != nil, err)
		return 0
	case "hang":
		time.Sleep(time.Hour)
	case "panic":
		fmt.Println("it was nice here")
		if err := os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0); err != nil {
			fmt.Println(err)
		}
		time.Sleep(time.Hour)
	}
	return 99
}

func oldest(t *testing.T) string {
	t.Helper()
	testenv.OnlyInTestAll(t)
	dir, err := kernel.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"5.10", "6.1", "6.12", "newest"} {
		_, err := kernel.Open(dir, name)
		if err == nil {
			return name
		}
		if !errors.Is(err, kernel.ErrNotFetched) {
			t.Fatal(err)
		}
	}
	t.Skip("no kernel is fetched: make vmtest-kernels")
	return ""
}

func chdir(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "vm.yaml"), []byte("memory: 512MiB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	return dir
}

func vmrun(t *testing.T, args ...string) (code int, stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	code, err = run(t.Context(), args, &out, &errs)
	if setup := (*kernel.SetupError)(nil); errors.As(err, &setup) {
		t.Skipf("no machine can be made here: %v", err)
	}
	return code, out.String(), errs.String(), err
}

func TestEndingsAreDistinguished(t *testing.T) {
	name := oldest(t)
	chdir(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what    string
		timeout string
		code    int
		stdout  string
		err     string
		stderr  string
	}{
		{what: "exit", code: 7, stdout: "goes\n", stderr: "vmrun: "},
		{what: "signal", code: 128 + 9, err: "signal 9 (SIGKILL)"},
		{what: "orphan", code: 0, stdout: "true <nil>"},
		{what: "panic", code: exitDied, stdout: "it was nice here", err: "Kernel panic - not syncing: sysrq triggered crash", stderr: "sysrq_handle_crash"},
		{what: "hang", timeout: "12s", code: exitTimeout, err: "timed out"},
	} {
		t.Run(c.what, func(t *testing.T) {
			if c.timeout == "" {
				c.timeout = "2m"
			}
			code, stdout, stderr, err := vmrun(t, "-kernel", name, "-timeout", c.timeout, self, payload+c.what)
			if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
				t.Errorf("exit code %d, want %d\nstdout %s\nstderr %s", code, c.code, stdout, stderr)
			}
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%v, want %q", err, c.err)
			}
		})
	}
}

func TestProgramIsAtHome(t *testing.T) {
	name := oldest(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KERNOSIS_TEST_TOLD", "yes")
	t.Setenv("HOSTNAME_OF_THE_HOST", "secret")
	dir := chdir(t)
	if err := os.MkdirAll(filepath.Join(dir, "testdata"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "testdata", "told"), []byte("here\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for cgroup, want := range map[string]string{"v2": "cgroup v2 true", "v1": "cgroup v2 false"} {
		code, stdout, stderr, err := vmrun(t, "-kernel", name, "-cgroup", cgroup, self, payload+"look")
		if code != 0 || err != nil {
			t.Fatalf("%d, %v: %s", code, err, stderr)
		}
		for _, want := range []string{"first process vmrun\n", "directory " + dir + "\n", "testdata here\n", `environment "yes" ""`, want} {
			if !strings.Contains(stdout, want) {
				t.Errorf("-cgroup %s: no %q in\n%s", cgroup, want, stdout)
			}
		}
	}
}

func TestBadArguments(t *testing.T) {
	t.Setenv("KERNOSIS_VMTEST_CACHE", t.TempDir())
	for want, args := range map[string][]string{
		"-kernel is missing":                 {"x.test"},
		"no program":                         {"-kernel", "6.1"},
		"-cgroup \"v3\"":                     {"-kernel", "6.1", "-cgroup", "v3", "x.test"},
		"-test.timeout":                      {"-kernel", "6.1", "x.test", "-test.timeout=soon"},
		"files of the machine":               {"-kernel", "6.1", "x.test", "-test.coverprofile=c.out"},
		"flag provided but not defined":      {"-kernle", "6.1", "x.test"},
		"make vmtest-kernels":                {"-kernel", "6.1", "x.test"},
		"invalid value \" \" for flag -load": {"-kernel", "6.1", "-load", " ", "x.test"},
	} {
		code, err := run(t.Context(), args, io.Discard, io.Discard)
		if code != exitSetup || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: exit code %d, %v; want %d, %q", args, code, err, exitSetup, want)
		}
	}
}

func TestTimeoutFollowsTheTests(t *testing.T) {
	for want, args := range map[time.Duration][]string{
		12 * time.Minute: {"x.test"},
		3 * time.Minute:  {"x.test", "-test.timeout=1m"},
		4 * time.Minute:  {"x.test", "-test.timeout", "2m"},
		time.Hour:        {"x.test", "-test.timeout=0"},
	} {
		o, err := parse(append([]string{"-kernel", "6.1"}, args...), io.Discard)
		if err != nil || o.timeout != want {
			t.Errorf("%q: %s, %v; want %s", args, o.timeout, err, want)
		}
	}
}

func TestFindConfig(t *testing.T) {
	module := t.TempDir()
	deep := filepath.Join(module, "a", "b")
	if err := errors.Join(os.MkdirAll(deep, 0o755), os.MkdirAll(filepath.Join(module, "vmtest"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := findConfig(deep); err == nil {
		t.Error("found one where there is none")
	}
	for _, path := range []string{filepath.Join(module, "go.mod"), filepath.Join(module, "vmtest", "vm.yaml"), filepath.Join(deep, "vm.yaml")} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := findConfig(filepath.Join(module, "a")); err != nil || got != filepath.Join(module, "vmtest", "vm.yaml") {
		t.Errorf("of a folder below: %s, %v", got, err)
	}
	if got, err := findConfig(deep); err != nil || got != filepath.Join(deep, "vm.yaml") {
		t.Errorf("of a folder with its own: %s, %v", got, err)
	}
}
