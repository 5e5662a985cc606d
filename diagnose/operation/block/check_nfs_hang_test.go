package block

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/operationtest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// nfsNode returns a fixture node with two NFS mounts. sends and receives are the counters of the
// first.
func nfsNode(sends, receives int) map[string]string {
	return map[string]string{
		"/proc/1/mountstats": nfsStats(sends, receives),
		"/proc/1/mountinfo":  "20 1 0:50 / /mnt/nfs rw - nfs4 filer:/export rw\n21 1 0:51 / /mnt/b rw - nfs4 other:/b rw\n",
		"/proc/stat":         "",
	}
}

func nfsStats(sends, receives int) string {
	return fmt.Sprintf("device filer:/export mounted on /mnt/nfs with fstype nfs4 statvers=1.1\n\txprt:\ttcp 0 0 1 0 4 %d %d 0 50 0\n"+
		"\tper-op statistics\n\t     GETATTR: 20 22 3 100 200 0 5 6 0\n"+
		"device other:/b mounted on /mnt/b with fstype nfs4 statvers=1.1\n\txprt:\ttcp 0 0 1 0 4 9 9 0 50 0\n", sends, receives)
}

// blockedInNFS adds a task that waits for a server, with or without a file.
func blockedInNFS(files map[string]string, file bool) map[string]string {
	files = maps.Clone(files)
	files["/proc/811/stat"] = "811 (pg) D 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 250 0 0\n"
	files["/proc/811/status"] = "Tgid:\t811\nUid:\t1\t1\t1\t1\n"
	files["/proc/811/task/811/x"] = ""
	files["/proc/811/stack"] = "[<0>] rpc_wait_bit_killable+0x1e/0x80 [sunrpc]\n"
	if file {
		files["/proc/811/syscall"] = "0 0x3 0x0 0x0 0x0 0x0 0x0 0x7ffd4ac54bc8 0x7f35591452ad"
		files["/proc/811/fd/3"] = "-> /mnt/nfs/f"
		files["/proc/811/fdinfo/3"] = "mnt_id:\t20\n"
		files["/proc/811/mountinfo"] = files["/proc/1/mountinfo"]
	}
	return files
}

func TestCheckNFSHang(t *testing.T) {
	window := map[string]string{"window": "50ms"}
	silent := nfsNode(57, 55)

	// The task's file shows the server.
	out, kept := operationtest.Succeed(t, CheckNFSHang(operationtest.HostOf(t, blockedInNFS(silent, true))), window)
	if v := out.Verdict; v.Reason != "NFSServerSilent" || v.Message != "filer:/export does not answer: pg[811] has waited" {
		t.Errorf("%+v", v)
	}
	if r := out.Results; r["source"] != "filer:/export" || r["mountPoint"] != "/mnt/nfs" || r["timeouts"] != "3" || r["blockedCount"] != "1" || !strings.Contains(kept.Files["stacks.txt"], "rpc_wait") {
		t.Errorf("%v", r)
	}
	// Without a file it may be either server.
	out, _ = operationtest.Succeed(t, CheckNFSHang(operationtest.HostOf(t, blockedInNFS(silent, false))), window)
	if v := out.Verdict; !strings.HasPrefix(v.Message, "filer:/export or other:/b does not answer") {
		t.Errorf("%+v", v)
	}
	// No task waits, and nothing is sent.
	if no := operationtest.Refuse(t, CheckNFSHang(operationtest.HostOf(t, silent)), window); no.Reason != "NFSServersAnswer" {
		t.Errorf("%+v", no)
	}
	if no := operationtest.Refuse(t, CheckNFSHang(operationtest.HostOf(t, map[string]string{"/proc/1/mountstats": "device a mounted on /a with fstype ext4\n"})), window); no.Reason != "NoNFSMount" {
		t.Errorf("%+v", no)
	}

	// The kernel has no counters of one mount: its server may be the one that does not answer.
	const uncounted = "device third:/c mounted on /mnt/c with fstype nfs4 statvers=1.1\n"
	for _, blocked := range []bool{false, true} {
		files := nfsNode(57, 55)
		if blocked {
			files = blockedInNFS(files, false)
		}
		files["/proc/1/mountstats"] += uncounted
		out, _, err := operationtest.Perform(t, CheckNFSHang(operationtest.HostOf(t, files)), window)
		if _, no := errors.AsType[*operation.Refuted](err); no || (err == nil) != blocked || !blocked && !strings.Contains(err.Error(), "no counters of third:/c") {
			t.Errorf("blocked %v: %+v, %v", blocked, out.Verdict, err)
		}
	}

	// Counters that change all the time.
	for _, c := range []struct {
		name     string
		files    map[string]string
		answered bool
	}{
		{"requests without answers", silent, false},
		{"answers, though a task is blocked", blockedInNFS(silent, true), true},
	} {
		h := operationtest.HostOf(t, c.files)
		ctx, cancel := context.WithCancel(t.Context())
		var g sync.WaitGroup
		g.Go(func() {
			for n := 0; operation.Pause(ctx, time.Millisecond) == nil; n++ {
				receives := 55
				if c.answered {
					receives += n
				}
				_ = os.WriteFile(h.FS.Path("/proc/1/new"), []byte(nfsStats(60+n, receives)), 0o644)
				_ = os.Rename(h.FS.Path("/proc/1/new"), h.FS.Path("/proc/1/mountstats"))
			}
		})
		b := CheckNFSHang(h)
		testenv.Until(t, c.name, 20*time.Second, func() bool { // until a busy machine has changed nothing within the window
			out, _, err := operationtest.Perform(t, b, window)
			var no *operation.Refuted
			if c.answered {
				return errors.As(err, &no) && strings.HasPrefix(no.Message, "filer:/export answers, though pg[811]")
			}
			return err == nil && strings.HasPrefix(out.Verdict.Message, "filer:/export: ") && strings.HasSuffix(out.Verdict.Message, " sent in 50ms, no answer")
		})
		cancel()
		g.Wait()
	}
}

func TestSilentNFS(t *testing.T) {
	m := func(source string, sends, receives uint64, counted bool) hostfs.NFSMount {
		return hostfs.NFSMount{Source: source, Path: "/" + source, Sends: sends, Receives: receives, Counted: counted}
	}
	silent, answering := silentNFS(
		[]hostfs.NFSMount{m("a", 1, 1, true), m("b", 5, 5, true), m("c", 0, 0, false), m("d", 9, 1, true)},
		[]hostfs.NFSMount{m("a", 2, 2, true), m("b", 7, 5, true), m("c", 0, 0, false), m("d", 9, 1, true), m("new", 1, 0, true)})
	if len(answering) != 1 || answering[0].Source != "a" || len(silent) != 2 || silent[0].Source != "b" || silent[0].sent != 2 || silent[1].Source != "d" {
		t.Errorf("silent %+v, answering %+v", silent, answering)
	}
}
