package kubetest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// childEnv makes the test binary start a server, report it, wait for a line, and end in the way
// that the variable names.
const childEnv = "KUBETEST_CHILD"

// said is a child process's report about its server.
type said struct {
	Dir       string
	Processes []int
}

func child() {
	s, err := kubetest.Start(context.Background(), kubetest.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(said{Dir: s.Dir(), Processes: s.Processes()})
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	switch os.Getenv(childEnv) {
	case "panic":
		panic("as asked")
	case "exit":
		os.Exit(0) // without a Close
	case "close":
		if err := s.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// startChild starts this program again as a child of the given kind.
func startChild(t *testing.T, cmd *exec.Cmd, kind string) (reported said, stdin io.WriteCloser) {
	t.Helper()
	cmd.Env = append(cmd.Environ(), childEnv+"="+kind)
	cmd.Stderr = t.Output()
	cmd.WaitDelay = time.Second
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
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if err := json.NewDecoder(stdout).Decode(&reported); err != nil {
		t.Fatal(err)
	}
	return reported, stdin
}

// gone waits until nothing of a server is left.
func gone(t *testing.T, s said) {
	t.Helper()
	testenv.UntilShown(t, "nothing is left", 20*time.Second, func() (bool, string) {
		left := ""
		for _, pid := range s.Processes {
			if alive(pid) {
				left = fmt.Sprintf("process %d", pid)
			}
		}
		if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
			left = s.Dir
		}
		return left == "", left
	})
}

// alive reports whether a process runs: an orphan that has ended stays as a zombie until the init
// process reaps it.
func alive(pid int) bool {
	s, err := hostfs.New("/").Stat(pid)
	return err == nil && s.State != 'Z' && s.State != 'X'
}

func TestNothingStaysWhenTheProcessEnds(t *testing.T) {
	testenv.OnlyInTestAll(t)
	cluster.Server(t) // so that the programs are built
	for _, kind := range []string{"close", "exit", "panic", "kill"} {
		t.Run(kind, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			reported, stdin := startChild(t, cmd, kind)
			for _, pid := range reported.Processes {
				if !alive(pid) {
					t.Fatalf("process %d does not run", pid)
				}
			}
			if kind == "kill" {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			} else if _, err := stdin.Write([]byte("\n")); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			gone(t, reported)
		})
	}
}

func TestAnOrdinaryUserCanRunIt(t *testing.T) {
	testenv.OnlyInTestAll(t)
	if os.Getuid() != 0 {
		t.Skip("not root: all tests run as an ordinary user already")
	}
	programs, err := kubetest.Programs(t.Context(), os.Stderr, "server")
	if err != nil {
		t.Fatal(err)
	}
	// Root's cache and go's folder of test programs are accessible to root only.
	dir, err := os.MkdirTemp("", "kubetest-user-") //nolint:usetesting // the folder of a test is below one for root alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{filepath.Join(programs, "etcd"), filepath.Join(programs, "kube-apiserver"), self} {
		if said, err := exec.Command("install", "-m", "755", program, dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
	}
	cmd := exec.Command(filepath.Join(dir, filepath.Base(self)))
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), kubetest.ProgramsEnv + "=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	reported, stdin := startChild(t, cmd, "close")
	if _, err := stdin.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	gone(t, reported)
}
