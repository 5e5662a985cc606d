package operationtest

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/await"
)

// Background starts a program that ends when thaw is called.
func Background(t *testing.T, thaw func(), name string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(name, args...)
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		thaw() // before all other clean-up; otherwise the program would not end
		c.Wait()
	})
	return c
}

// Hangs waits until a process is in state D and stays in it.
func Hangs(t *testing.T, pid int) {
	t.Helper()
	h, looks := RealHost(), 0
	await.Until(t, "process "+strconv.Itoa(pid)+" hangs", 20*time.Second, func() bool {
		stat, err := h.FS.Stat(pid)
		if err != nil {
			t.Fatal(err)
		}
		if looks++; stat.State != 'D' {
			looks = 0
		}
		return looks >= 4
	})
}
