package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// patience is how long anything may take on a busy machine.
const patience = 60 * time.Second

// TestMain runs the tests, or one of the programs that they start.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "test-program" {
		os.Exit(testProgram(os.Args[2], os.Args[3:]))
	}
	os.Exit(testenv.CheckLeaks(m.Run))
}

// testProgram is for programs that can't be shell scripts.
func testProgram(name string, args []string) int {
	switch name {
	case "flood": // one GiB
		line := bytes.Repeat([]byte("0123456789abcde\n"), 64<<10)
		for range 1 << 10 {
			if _, err := os.Stdout.Write(line); err != nil {
				return 3
			}
		}
		return 1
	case "escape": // a process of another session holds the output open
		cmd := exec.Command("sleep", "1000")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return 3
		}
		fmt.Println("escaped")
		return 0
	case "leave": // a process that writes to a file, once it hangs or has ended
		write := exec.Command("/bin/sh", "-c", `echo begun; : >"$0"`, args[0]) // with one thread, unlike a Go program
		write.SysProcAttr = &syscall.SysProcAttr{Setsid: len(args) > 1}
		begun, err := write.StdoutPipe()
		if err != nil {
			return 3
		}
		if err := write.Start(); err != nil {
			return 3
		}
		if _, err := begun.Read(make([]byte, 1)); err != nil {
			return 3
		}
		for {
			stat, err := hostfs.New("").Stat(write.Process.Pid)
			if err != nil {
				return 3
			}
			if stat.State == 'D' || stat.State == 'Z' {
				return 0
			}
		}
	}
	return 3
}

// self returns the path and arguments of a testProgram.
func self(t *testing.T, args ...string) (string, []string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe, append([]string{"test-program"}, args...)
}
