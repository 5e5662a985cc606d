package block

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/operationtest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// frozen makes a task hang on a frozen filesystem of its own until the test ends.
func frozen(t *testing.T) (*inject.FSFreeze, inject.Hang) {
	t.Helper()
	operationtest.NeedRoot(t)
	fault := &inject.FSFreeze{StateDir: t.TempDir(), Limit: time.Minute}
	hang, err := fault.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fault.Close(); err != nil {
			t.Error(err)
		}
	})
	return fault, hang
}

func TestBlockedStacksOfAFrozenFilesystem(t *testing.T) {
	began := time.Now()
	fault, hang := frozen(t)
	device, dir := fault.Mount()
	b := BlockedStacks(operationtest.RealHost())
	pid := strconv.Itoa(hang.Waiter.TID)
	out, kept := operationtest.Succeed(t, b, map[string]string{"pid": pid})
	t.Logf("%v\n%s", out.Results, kept.Files["stacks.txt"])
	for key, want := range map[string]string{
		"blockedCount": "1", "pid": pid, "tgid": strconv.Itoa(hang.Waiter.PID), "comm": hang.Waiter.Comm, "state": "D",
		"waitsFor": hostfs.WaitFrozenFilesystem, "mountPoint": dir, "device": filepath.Base(device), "fsType": "ext4", "source": device,
	} {
		if out.Results[key] != want {
			t.Errorf("%s is %q, want %q", key, out.Results[key], want)
		}
	}
	if top := out.Results["stackTop"]; !strings.Contains(top, "percpu") {
		t.Errorf("stack top %q", top)
	}
	if text := kept.Files["stacks.txt"]; !strings.Contains(text, "percpu_") || !strings.Contains(text, "vfs_write") || !strings.Contains(text, hang.Waiter.Comm+"[") {
		t.Errorf("stacks.txt: %s", text)
	}
	blocked, err := time.ParseDuration(out.Results["blockedFor"])
	if real := time.Since(began); err != nil || blocked > real {
		t.Errorf("blocked for %s of %s: %v", blocked, real, err)
	}

	// It is also among all tasks once it has slept long enough, which proves that the clock is
	// right.
	testenv.Until(t, "blocked for 1 s", 20*time.Second, func() bool {
		out, _ := operationtest.Succeed(t, b, map[string]string{"minBlocked": "1s"})
		return out.Results["blockedCount"] != "0" && strings.Contains(out.Results["kinds"], hostfs.WaitFrozenFilesystem)
	})
	if real := time.Since(began); real < time.Second {
		t.Errorf("reported to be blocked for 1 s after %s", real)
	}

	// Another task that had the same PID.
	if _, _, err := operationtest.Perform(t, b, map[string]string{"pid": pid, "startTime": "1s"}); err == nil || !strings.Contains(err.Error(), "reused") {
		t.Errorf("another start time: %v", err)
	}
	if _, _, err := operationtest.Perform(t, b, map[string]string{"pid": pid, "startTime": out.Results["startTime"]}); err != nil {
		t.Error(err)
	}

	// If the disk budget is exhausted, the findings are reported without the file.
	values, _ := b.Fill(map[string]string{"pid": pid})
	full, err := b.Run(t.Context(), &operation.Call{Parameters: values, Artifacts: &operationtest.Artifacts{Limit: 1}})
	if err != nil || full.Results["waitsFor"] != hostfs.WaitFrozenFilesystem || !strings.Contains(full.Results["note"], "budget") {
		t.Errorf("%v, %v", full.Results, err)
	}

	if err := fault.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	out, _ = operationtest.Succeed(t, b, map[string]string{"pid": pid})
	if out.Results["blockedCount"] != "0" || out.Results["state"] == "D" {
		t.Errorf("after the thaw: %v", out.Results)
	}
}

func TestBlockedStacksOfALock(t *testing.T) {
	operationtest.NeedRoot(t)
	fault := &inject.HungTask{Limit: time.Minute}
	hang, err := fault.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer fault.Close()
	out, kept := operationtest.Succeed(t, BlockedStacks(operationtest.RealHost()), map[string]string{
		"pid": strconv.Itoa(hang.Waiter.TID), "holderPID": strconv.Itoa(hang.Holder.TID),
	})
	t.Logf("%v\n%s", out.Results, kept.Files["stacks.txt"])
	if r := out.Results; r["waitsFor"] != hostfs.WaitLock || !strings.Contains(r["stackTop"], "mutex") && !strings.Contains(r["stackTop"], "pipe_write") || r["holderPID"] != strconv.Itoa(hang.Holder.TID) {
		t.Errorf("%v", r)
	}
	if text := kept.Files["stacks.txt"]; !strings.Contains(text, "# holds the lock\n"+hang.Holder.Comm) || !strings.Contains(text, "handle_userfault") {
		t.Errorf("stacks.txt: %s", text)
	}
}

// A process waits for a journal, whose thread waits for a disk that completes nothing.
func TestBlockedStacksOfAJournal(t *testing.T) {
	d := disklab.NewExt4(t, 64<<20)
	upper := d.Upper()
	dir := d.MountExt4(upper)
	name := filepath.Base(upper)
	thaw := d.Freeze()
	writer := hangingWrite(t, thaw, "of="+dir+"/file", "conv=fsync")
	var out operation.Output
	var kept *operationtest.Artifacts
	testenv.Until(t, "the writer waits for the journal", 20*time.Second, func() bool {
		out, kept = operationtest.Succeed(t, BlockedStacks(operationtest.RealHost()), map[string]string{"pid": strconv.Itoa(writer)})
		return out.Results["waitsFor"] == hostfs.WaitJournal || out.Results["waitsFor"] == hostfs.WaitDisk
	})
	t.Logf("%v\n%s", out.Results, kept.Files["stacks.txt"])
	if r := out.Results; r["device"] != name || r["mountPoint"] != dir || r["fsType"] != "ext4" {
		t.Errorf("%v", r)
	}
	testenv.Until(t, "the journal's thread is reported with its device", 20*time.Second, func() bool {
		_, kept = operationtest.Succeed(t, BlockedStacks(operationtest.RealHost()), map[string]string{"minBlocked": "100ms"})
		text := kept.Files["stacks.txt"]
		return strings.Contains(text, "jbd2/"+name+"-8[") && strings.Contains(text, "works for "+name+" at "+dir+" (ext4)")
	})
	t.Log(kept.Files["stacks.txt"])

	// The disk below is what hangs.
	stalled, _ := operationtest.Succeed(t, CheckDiskStalled(operationtest.RealHost()), map[string]string{"device": out.Results["device"], "window": "200ms"})
	if !strings.Contains(stalled.Verdict.Message, "; at "+dir) {
		t.Errorf("%+v", *stalled.Verdict)
	}
	// And below the disk, the filesystem with its backing file hangs.
	testenv.Until(t, "the frozen filesystem is found", 20*time.Second, func() bool {
		out, _, err := operationtest.Perform(t, CheckFilesystemFrozen(operationtest.RealHost()), nil)
		return err == nil && strings.HasPrefix(out.Verdict.Message, "ext4 on "+d.Device+" at "+d.Dir+" is frozen: kworker/")
	})
}

// A fixture node: an NFS client's task in a pod, and stacks that can't be read.
func TestBlockedStacksOfAPod(t *testing.T) {
	const pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f6d5b2e_7c1a_4e0b_9a53_2f1c8e4d7b60.slice"
	status := "Name:\tpg\nTgid:\t811\nUid:\t1\t1\t1\t1\n"
	stat := func(pid string) string {
		return pid + " (pg\x1b) D 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 250 0 0\n"
	}
	files := map[string]string{
		"/proc/811/stat": stat("811"), "/proc/811/status": status,
		"/proc/811/cgroup":       "0::" + pod + "\n",
		"/proc/811/task/811/x":   "",
		"/proc/811/task/812/x":   "",
		"/proc/812/stat":         stat("812"),
		"/proc/812/status":       status,
		"/proc/812/wchan":        "rpc_wait_bit_killable",
		"/proc/811/stack":        "[<0>] rpc_wait_bit_killable+0x1e/0x80 [sunrpc]\n[<0>] nfs4_do_close+0x2a/0x30 [nfsv4]\n",
		"/proc/811/syscall":      "0 0x3 0x7f3558fca000 0x20000 0x7f355905cb60 0xffffffff 0x0 0x7ffd4ac54bc8 0x7f35591452ad",
		"/proc/811/fd/3":         "-> /data/f",
		"/proc/811/fdinfo/3":     "pos:\t0\nmnt_id:\t77\n",
		"/proc/811/mountinfo":    "77 1 0:50 / /data rw - nfs4 filer:/export rw,vers=4.2\n",
		"/proc/1/mountinfo":      "20 1 0:50 / /mnt/nfs rw - nfs4 filer:/export rw,vers=4.2\n",
		"/proc/812/task/ignored": "",
	}
	out, kept := operationtest.Succeed(t, BlockedStacks(operationtest.HostOf(t, files)), nil)
	t.Log(out.Results)
	for key, want := range map[string]string{
		"blockedCount": "2", "kinds": "nfs=2", "pid": "811", "waitsFor": "nfs", "podUID": "0f6d5b2e-7c1a-4e0b-9a53-2f1c8e4d7b60",
		"cgroup": pod, "source": "filer:/export", "fsType": "nfs4", "mountPoint": "/data", "comm": `pg\x1b`,
	} {
		if out.Results[key] != want {
			t.Errorf("%s is %q, want %q", key, out.Results[key], want)
		}
	}
	if _, reported := out.Results["blockedFor"]; reported {
		t.Error("a time that the kernel does not tell")
	}
	if text := kept.Files["stacks.txt"]; !strings.Contains(text, "812] tgid 811 state D") || strings.Contains(text, "\x1b") {
		t.Errorf("stacks.txt: %q", text)
	}
	// A page fault in a buffer may be about any file.
	faulting := maps.Clone(files)
	faulting["/proc/811/stack"] += "[<0>] handle_mm_fault+0xd0/0x200\n[<0>] _copy_to_iter+0x80/0x90\n"
	out, _ = operationtest.Succeed(t, BlockedStacks(operationtest.HostOf(t, faulting)), map[string]string{"pid": "811"})
	if r := out.Results; r["waitsFor"] != "nfs" || r["source"] != "" || r["mountPoint"] != "" {
		t.Errorf("%v", r)
	}
	out, _ = operationtest.Succeed(t, BlockedStacks(operationtest.HostOf(t, files)), map[string]string{"max": "1"})
	if !strings.Contains(out.Results["note"], "1 more") || out.Results["blockedCount"] != "2" {
		t.Errorf("%v", out.Results)
	}
	if _, _, err := operationtest.Perform(t, BlockedStacks(operationtest.HostOf(t, files)), map[string]string{"pid": "4711"}); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a task that has ended: %v", err)
	}
}

// A task in exec holds the lock that reading its stack needs. FIFOs simulate this: opening them
// blocks.
func TestBlockedStacksOfATaskThatHoldsItsLocks(t *testing.T) {
	testenv.OnlyInTestAll(t)
	h := operationtest.HostOf(t, map[string]string{
		"/proc/811/stat":       "811 (pg) D 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 250 0 0\n",
		"/proc/811/status":     "Tgid:\t811\nUid:\t1\t1\t1\t1\nThreads:\t1\nVmSize:\t1 kB\n",
		"/proc/811/wchan":      "rpc_wait_bit_killable",
		"/proc/811/task/811/x": "",
	})
	stackFile, cgroup := h.FS.Path("/proc/811/stack"), h.FS.Path("/proc/811/cgroup")
	operationtest.Mkfifo(t, stackFile)
	operationtest.Mkfifo(t, cgroup)
	out, _ := operationtest.Succeed(t, BlockedStacks(h), nil)
	r := out.Results
	if r["waitsFor"] != hostfs.WaitNFS || !strings.Contains(r["note"], "no answer within 2s; using wait channels instead") || !strings.Contains(r["note"], "can't determine the owner of pg[811]: no answer") {
		t.Errorf("%v", r)
	}
	for _, fifo := range []string{stackFile, cgroup} { // unblocks the reads
		w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
	}
}

// BenchmarkBlockedStacks inspects all tasks of this machine.
func BenchmarkBlockedStacks(b *testing.B) {
	o := BlockedStacks(operationtest.RealHost())
	values, err := o.Fill(nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := o.Run(b.Context(), &operation.Call{Parameters: values, Artifacts: &operationtest.Artifacts{}}); err != nil {
			b.Fatal(err)
		}
	}
	load, err := operationtest.RealHost().FS.LoadAverage()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(load.Tasks), "µs/task")
}
