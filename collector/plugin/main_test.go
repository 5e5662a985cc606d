package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/process"
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
	case "escape": // a process of another session holds the output open
		cmd := exec.Command("sleep", "1000")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return 3
		}
		fmt.Println("escaped")
		return 0
	case "agent": // runs a check until it is killed
		r, err := New(Config{
			Name: "agent", Spread: 1, Timeout: patience,
			Checks: []Check{{Name: "c", Path: args[0]}},
		}, nil, func(Result) {})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
		_ = r.Run(context.Background())
	case "init": // inherits the orphans, and leaves none
		if os.Getpid() == 1 {
			if err := ownProc(); err != nil {
				fmt.Println("mount /proc:", err)
				return 3
			}
		} else if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return 3
		}
		return initProgram(args[0])
	}
	return 3
}

// ownProc mounts /proc for this pid namespace.
func ownProc() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("proc", "/proc", "proc", 0, "")
}

// initProgram runs a check that leaves orphans, together with a reaper, and reports whether the
// orphans were waited for, and a child of our own was not.
func initProgram(check string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// Longer than a program's output is waited for after its end, as in the agent.
	go reapOrphans(ctx, 2*time.Second, slog.New(slog.DiscardHandler))
	for range 3 {
		p := process.Program{Path: check, Timeout: patience}
		if o := p.Run(ctx); o.Err != nil || o.State.ExitCode() != 0 {
			fmt.Println("check:", o.Err, o.State)
			return 1
		}
	}
	deadline := time.Now().Add(testenv.Within(patience))
	for len(zombies()) > 0 {
		if time.Now().After(deadline) {
			fmt.Println("zombies are left")
			return 1
		}
		time.Sleep(10 * time.Millisecond)
	}
	return 0
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
