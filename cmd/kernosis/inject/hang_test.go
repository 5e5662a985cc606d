package inject_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestHungTask(t *testing.T) {
	needRoot(t)
	h := &inject.HungTask{}
	hang, err := h.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	t.Logf("%+v, wait channel %q", hang, hang.Waiter.WaitChannel())
	if hang.Waiter.Comm != "kn-hang-waiter" || hang.Holder.Comm != "kn-hang-holder" || hang.Waiter.PID == hang.Holder.PID {
		t.Errorf("unexpected subjects: %+v", hang)
	}
	for _, task := range []inject.Task{hang.Waiter, hang.Holder} {
		comm, err := os.ReadFile("/proc/" + itoa(task.PID) + "/task/" + itoa(task.TID) + "/comm")
		if got := strings.TrimSpace(string(comm)); err != nil || got != task.Comm {
			t.Errorf("thread %d is named %q (%v), want %q", task.TID, got, err, task.Comm)
		}
	}
	if s := state(t, hang.Holder); s != 'S' {
		t.Errorf("holder in state %c, want S: it isn't to be taken for the victim, nor to spin", s)
	}
	// Not just a transient state: SIGKILL doesn't end it.
	syscall.Kill(hang.Waiter.PID, syscall.SIGSTOP)
	if s := state(t, hang.Waiter); s != 'D' {
		t.Errorf("waiter in state %c, want D", s)
	}
	syscall.Kill(hang.Waiter.PID, syscall.SIGCONT)
	if err := h.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := state(t, hang.Waiter); s == 'D' {
		t.Error("still in state D after Heal")
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

func TestHungTaskHealsByItself(t *testing.T) {
	needRoot(t)
	h := &inject.HungTask{Limit: testenv.Within(2 * time.Second)}
	hang, err := h.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	testenv.Until(t, "waiter out of state D", 10*time.Second, func() bool { return state(t, hang.Waiter) != 'D' })
}

func TestHungTaskHealsWhenHolderIsKilled(t *testing.T) {
	needRoot(t)
	h := &inject.HungTask{}
	hang, err := h.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	syscall.Kill(hang.Holder.PID, syscall.SIGKILL)
	testenv.Until(t, "waiter out of state D", 10*time.Second, func() bool { return state(t, hang.Waiter) != 'D' })
}

func TestFSFreeze(t *testing.T) {
	z := &inject.FSFreeze{StateDir: stateDir(t)}
	hang, err := z.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	device, dir := z.Mount()
	t.Logf("%+v, wait channel %q, %s on %s", hang, hang.Waiter.WaitChannel(), device, dir)
	if s := state(t, hang.Waiter); s != 'D' {
		t.Errorf("writer in state %c, want D", s)
	}
	if b, _ := os.ReadFile(dir + "/file"); len(b) != 0 {
		t.Errorf("frozen, but %q was written", b)
	}
	if err := z.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(dir + "/file"); len(b) == 0 {
		t.Error("thawed, but nothing was written")
	}
	if err := z.Close(); err != nil {
		t.Error(err)
	}
}

// The guard thaws when the owner doesn't.
func TestFSFreezeOverrun(t *testing.T) {
	dir := stateDir(t)
	// The limit includes the start of the writer.
	z := &inject.FSFreeze{StateDir: dir, Limit: testenv.Within(2 * time.Second)}
	hang, err := z.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	testenv.Until(t, "writer out of state D", 10*time.Second, func() bool { return state(t, hang.Waiter) != 'D' })
	if err := z.Close(); err != nil {
		t.Error(err)
	}
}
