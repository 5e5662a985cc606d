package testenv

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// holderEnv makes the test binary hold the kernel: as TestMain or as the parent of another holder,
// or else the lock at a path.
const (
	holderEnv  = "KERNOSIS_TEST_HOLDER"
	asTestMain = "as TestMain"
	asParent   = "as a parent"
)

func hold(role string) {
	switch role {
	case asTestMain:
		HoldKernelForProcess()
	case asParent:
		HoldKernelForProcess()
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), holderEnv+"="+asTestMain)
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Run(); err != nil {
			panic(err)
		}
		return
	default:
		if _, err := lockKernel(role); err != nil {
			panic(err)
		}
	}
	os.Stdout.WriteString("held\n")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// A child of the lock's holder does not wait: it may run the same binary.
func TestHoldKernelOfAChild(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: nobody else takes the lock")
	}
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv(heldEnv, "") // restored at the end
	os.Unsetenv(heldEnv)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+asParent)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "held\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// Two tests of a process share the lock, and it is released after the second one.
func TestHoldKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: nobody else takes the lock")
	}
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv(heldEnv, "") // restored at the end
	os.Unsetenv(heldEnv)
	others := func() error {
		file, err := os.Open(filepath.Join(os.TempDir(), "kernosis-tests.lock"))
		if err != nil {
			return err
		}
		defer file.Close()
		return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	t.Run("first", func(t *testing.T) {
		HoldKernel(t)
		t.Run("second", func(t *testing.T) { HoldKernel(t) })
		if err := others(); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Errorf("while the first test runs, others get %v", err)
		}
		if os.Getenv(heldEnv) == "" {
			t.Error("its children would wait for it")
		}
	})
	if err := others(); err != nil {
		t.Errorf("behind both: %v", err)
	}
	if held, ok := os.LookupEnv(heldEnv); ok {
		t.Errorf("%s is still %q", heldEnv, held)
	}
}

// Only one process at a time holds the lock, and only as long as it lives.
func TestHoldKernelForProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+path)
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
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "held\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("lock held by another process: %v", err)
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("after the end of the other process: %v", err)
	}
}
