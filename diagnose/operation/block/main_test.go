package block

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/operationtest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Children that inject real faults are this binary.
func TestMain(m *testing.M) {
	if !inject.RunChild(os.Args) {
		testenv.HoldKernelForProcess()
		os.Exit(testenv.CheckLeaks(m.Run))
	}
}

// hangingWrite starts dd with the arguments, waits until it hangs, in state D, and returns its PID.
// It ends when thaw is called.
func hangingWrite(t *testing.T, thaw func(), args ...string) (pid int) {
	t.Helper()
	c := exec.Command("dd", append(args, "if=/dev/zero", "bs=4096", "count=1", "status=none")...)
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		thaw() // before all other clean-up; otherwise the program would not end
		c.Wait()
	})
	h, looks := operationtest.RealHost(), 0
	testenv.Until(t, "dd hangs", 20*time.Second, func() bool {
		stat, err := h.FS.Stat(c.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if looks++; stat.State != 'D' {
			looks = 0
		}
		return looks >= 4
	})
	return c.Process.Pid
}
