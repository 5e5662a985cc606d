package block

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/operationtest"
)

func TestCheckLockHolder(t *testing.T) {
	operationtest.NeedRoot(t)
	fault := &inject.HungTask{Limit: time.Minute}
	hang, err := fault.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer fault.Close()
	b := CheckLockHolder(operationtest.RealHost())
	waiter, holder := strconv.Itoa(hang.Waiter.TID), strconv.Itoa(hang.Holder.TID)
	out, kept := operationtest.Succeed(t, b, map[string]string{"pid": waiter, "holderPID": holder})
	t.Logf("%+v\n%v", *out.Verdict, out.Results)
	if v := out.Verdict; v.Reason != "LockHeld" || !strings.Contains(v.Message, hang.Waiter.Comm+"["+waiter+"]") ||
		!strings.Contains(v.Message, "held by "+hang.Holder.Comm+"["+holder+"]") || !strings.Contains(v.Message, "handle_userfault") {
		t.Errorf("%+v", v)
	}
	for key, want := range map[string]string{
		"holderPID": holder, "holderTGID": strconv.Itoa(hang.Holder.PID), "holderComm": hang.Holder.Comm, "holderState": "S",
	} {
		if out.Results[key] != want {
			t.Errorf("%s is %q, want %q", key, out.Results[key], want)
		}
	}
	if text := kept.Files["holder.txt"]; !strings.Contains(text, "handle_userfault") || !strings.Contains(text, "anon_pipe_write") {
		t.Errorf("holder.txt: %s", text)
	}

	for _, c := range []struct {
		name, reason string
		parameters   map[string]string
	}{
		{"no holder", "NoKnownLockHolder", map[string]string{"pid": waiter}},
		{"the holder has ended", "LockHolderGone", map[string]string{"pid": waiter, "holderPID": "4194304"}},
		{"another has the waiter's number", "TaskNotBlocked", map[string]string{"pid": waiter, "holderPID": holder, "startTime": "1s"}},
		{"nobody waits", "TaskNotBlocked", map[string]string{"pid": holder, "holderPID": waiter}},
	} {
		if no := operationtest.Refuse(t, b, c.parameters); no.Reason != c.reason {
			t.Errorf("%s: %+v", c.name, no)
		}
	}
	if err := fault.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if no := operationtest.Refuse(t, b, map[string]string{"pid": waiter, "holderPID": holder}); no.Reason != "TaskNotBlocked" {
		t.Errorf("healed: %+v", no)
	}
}

// A task that waits for a disk is not blocked by a lock holder, whoever is given as one.
func TestCheckLockHolderOfAnotherWait(t *testing.T) {
	files := map[string]string{
		"/proc/811/stat":   "811 (pg) D 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 250 0 0\n",
		"/proc/811/status": "Tgid:\t811\nUid:\t1\t1\t1\t1\n",
		"/proc/811/stack":  "[<0>] folio_wait_bit_common+0x1e/0x80\n[<0>] vfs_read+0x2a/0x30\n",
	}
	no := operationtest.Refuse(t, CheckLockHolder(operationtest.HostOf(t, files)), map[string]string{"pid": "811", "holderPID": "812"})
	if no.Reason != "NoKnownLockHolder" || !strings.Contains(no.Message, "disk") {
		t.Errorf("%+v", no)
	}
}
