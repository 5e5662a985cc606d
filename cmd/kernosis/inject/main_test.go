package inject_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// marker is in the environment of every process of this test run.
const marker = "KERNOSIS_INJECT_TEST"

// testInjector is the argv[0] of a process of this binary that runs one fault. The SIGKILL
// tests kill it.
const testInjector = "kernosis-inject-test"

func TestMain(m *testing.M) {
	if inject.RunChild(os.Args) {
		return
	}
	if os.Args[0] == testInjector {
		f, _ := inject.Find(os.Args[1])
		_, err := f.Run(context.Background(), inject.Env{Out: os.Stdout, Duration: time.Minute, StateDir: os.Args[2]})
		fmt.Println(err)
		return
	}
	testenv.HoldKernelForProcess()
	os.Setenv(marker, strconv.Itoa(os.Getpid()))
	// Race-enabled children would otherwise take a second each to exit.
	os.Setenv("GORACE", strings.TrimSpace("atexit_sleep_ms=0 "+os.Getenv("GORACE")))
	code := testenv.CheckLeaks(m.Run)
	if left := marked(os.Getpid()); code == 0 && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "processes left behind: %q\n", left)
		code = 1
	}
	if left := tracesOf(os.Getpid()); code == 0 && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "left behind: %q\n", left)
		code = 1
	}
	os.Exit(code)
}

// marked lists the processes other than self that carry this test's marker.
func marked(self int) (left []string) {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		pid := strings.Split(path, "/")[2]
		env, err := os.ReadFile(path)
		if err != nil || pid == strconv.Itoa(self) || !bytes.Contains(env, []byte(marker+"="+os.Getenv(marker)+"\x00")) {
			continue
		}
		cmdline, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		left = append(left, pid+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
	}
	return left
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("provoking kernel faults needs root")
	}
}

// stateDir returns an empty state directory and checks at the end of the test that the
// faults left nothing: no record, mount, loop device or cgroup.
func stateDir(t *testing.T) string {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	t.Cleanup(func() {
		if left := traces(t, dir); len(left) > 0 {
			t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
		}
	})
	return dir
}

// traces lists what is left of faults in dir, in the kernel and the filesystem.
func traces(t *testing.T, dir string) (left []string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			left = append(left, "mount "+strings.TrimSpace(line))
		}
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, l := range loops {
		if b, err := os.ReadFile(l); err == nil && strings.HasPrefix(string(b), dir) {
			left = append(left, "loop "+l)
		}
	}
	files, _ := filepath.Glob(dir + "/*")
	for _, f := range files {
		left = append(left, "file "+f)
	}
	return left
}

// tracesOf lists what is left of a process's faults outside of a state directory: memory
// cgroups, and loop devices over a memfd.
func tracesOf(pid int) (left []string) {
	for _, root := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"} {
		m, _ := filepath.Glob(fmt.Sprintf("%s/kernosis-inject-%d-*", root, pid))
		left = append(left, m...)
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, l := range loops {
		b, err := os.ReadFile(l)
		if err == nil && strings.HasPrefix(string(b), fmt.Sprintf("/memfd:kernosis-inject-%d-", pid)) {
			left = append(left, "loop "+l)
		}
	}
	return left
}

func state(t *testing.T, task inject.Task) byte {
	t.Helper()
	s, err := task.State()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func netnsInode(t *testing.T, pid string) string {
	t.Helper()
	link, err := os.Readlink("/proc/" + pid + "/ns/net") // net:[4026532281]
	if err != nil {
		t.Fatal(err)
	}
	return strings.Trim(strings.TrimPrefix(link, "net:"), "[]")
}
