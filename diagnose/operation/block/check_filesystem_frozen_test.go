package block

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/operationtest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestCheckFilesystemFrozen(t *testing.T) {
	fault, hang := frozen(t)
	device, dir := fault.Mount()
	b := CheckFilesystemFrozen(operationtest.RealHost())
	pid := strconv.Itoa(hang.Waiter.TID)
	out, kept := operationtest.Succeed(t, b, map[string]string{"pid": pid})
	t.Logf("%+v", *out.Verdict)
	if v := out.Verdict; v.Reason != "FilesystemFrozen" || !strings.HasPrefix(v.Message, "ext4 on "+device+" at "+dir+" is frozen: "+hang.Waiter.Comm+"["+pid+"]") {
		t.Errorf("%+v", v)
	}
	if r := out.Results; r["mountPoint"] != dir || r["device"] != filepath.Base(device) || r["pid"] != pid || !strings.Contains(kept.Files["stacks.txt"], "vfs_write") {
		t.Errorf("%v", r)
	}
	testenv.Until(t, "it is found among all", 20*time.Second, func() bool {
		out, _, err := operationtest.Perform(t, b, map[string]string{"minBlocked": "100ms"})
		return err == nil && out.Results["mountPoint"] == dir
	})
	if err := fault.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if no := operationtest.Refuse(t, b, map[string]string{"pid": pid}); no.Reason != "NoFilesystemFrozen" {
		t.Errorf("%+v", no)
	}
	if no := operationtest.Refuse(t, b, map[string]string{"pid": "4194304"}); !strings.Contains(no.Message, "gone") {
		t.Errorf("%+v", no)
	}
}

// Without permission to read stacks, it is not known that nothing is frozen.
func TestCheckFilesystemFrozenWithoutStacks(t *testing.T) {
	files := map[string]string{
		"/proc/811/stat":       "811 (pg) D 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 250 0 0\n",
		"/proc/811/status":     "Tgid:\t811\nUid:\t1\t1\t1\t1\n",
		"/proc/811/task/811/x": "",
		"/proc/811/wchan":      "percpu_rwsem_wait",
	}
	_, _, err := operationtest.Perform(t, CheckFilesystemFrozen(operationtest.HostOf(t, files)), nil)
	if err == nil || !strings.Contains(err.Error(), "needs CAP_SYS_ADMIN") {
		t.Errorf("%v", err)
	}
}

// More blocked tasks than are examined may hide the one that waits for a thaw.
func TestCheckFilesystemFrozenOfTooManyTasks(t *testing.T) {
	files := map[string]string{}
	for pid := 1000; pid <= 1000+blockedMostMax; pid++ {
		dir := fmt.Sprintf("/proc/%d", pid)
		files[dir+"/stat"] = fmt.Sprintf("%d (pg) D 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 250 0 0\n", pid)
		files[fmt.Sprintf("%s/task/%d/x", dir, pid)] = ""
		files[dir+"/stack"] = "[<0>] io_schedule+0x46/0x80\n"
	}
	h := operationtest.HostOf(t, files)
	_, _, err := operationtest.Perform(t, CheckFilesystemFrozen(h), nil)
	if _, no := errors.AsType[*operation.Refuted](err); err == nil || no || !strings.HasSuffix(err.Error(), "; 1 more were not examined") {
		t.Errorf("%v", err)
	}
	if err := os.RemoveAll(h.FS.Path("/proc/1000")); err != nil {
		t.Fatal(err)
	}
	operationtest.Refuse(t, CheckFilesystemFrozen(h), nil)
}
