package process

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/vmtest/operationtest"
)

func TestProcessDetailOfThisProcess(t *testing.T) {
	pid := strconv.Itoa(os.Getpid())
	b := ProcessDetail(operationtest.RealHost())
	out, _ := operationtest.Succeed(t, b, map[string]string{"pid": pid})
	t.Log(out.Results)
	self, _ := os.Executable()
	for key, want := range map[string]string{
		"pid": pid, "tgid": pid, "exe": self, "ppid": strconv.Itoa(os.Getppid()), "uid": strconv.Itoa(os.Getuid()),
		"kernelThread": "false", "blockedThreads": "0", "note": "",
	} {
		if out.Results[key] != want {
			t.Errorf("%s is %q, want %q", key, out.Results[key], want)
		}
	}
	for _, key := range []string{"rssBytes", "threads", "openFiles", "openFilesLimit", "vmBytes"} {
		if n, err := strconv.ParseUint(out.Results[key], 10, 64); err != nil || n == 0 {
			t.Errorf("%s is %q", key, out.Results[key])
		}
	}
	if !strings.Contains(out.Results["cmdline"], "-test.") || !strings.Contains(out.Results["limits"], "open files") {
		t.Errorf("%v", out.Results)
	}
	for _, parameters := range []map[string]string{{"pid": "4194304"}, {"pid": pid, "startTime": "1s"}} {
		if _, _, err := operationtest.Perform(t, b, parameters); err == nil || !strings.Contains(err.Error(), "is gone") {
			t.Errorf("%v: %v", parameters, err)
		}
	}
}

// A task holds its memory's lock forever: everything but its command line is reported. A FIFO
// simulates this: opening it blocks.
func TestProcessDetailWithoutCommandLine(t *testing.T) {
	h := operationtest.HostOf(t, map[string]string{
		"/proc/811/stat":   "811 (pg) D 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 250 0 0\n",
		"/proc/811/status": "Tgid:\t811\nUid:\t1\t1\t1\t1\nThreads:\t1\nVmSize:\t8 kB\nVmRSS:\t4 kB\n",
		"/proc/811/cgroup": "0::/system.slice/pg.service\n",
	})
	fifo := h.FS.Path("/proc/811/cmdline")
	operationtest.Mkfifo(t, fifo)
	out, _ := operationtest.Succeed(t, ProcessDetail(h), map[string]string{"pid": "811"})
	if r := out.Results; !strings.Contains(r["note"], "command line can't be read: no answer within 2s") || r["owner"] != "unit pg.service" || r["rssBytes"] != "4096" {
		t.Errorf("%v", out.Results)
	}
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0) // unblocks the read
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
}

func TestProcessTree(t *testing.T) {
	sleep := exec.Command("sleep", "60")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		sleep.Process.Kill()
		sleep.Wait()
	}()
	pid := strconv.Itoa(os.Getpid())
	b := ProcessTree(operationtest.RealHost())
	out, kept := operationtest.Succeed(t, b, map[string]string{"pid": pid})
	if out.Results["count"] != "2" || !strings.HasSuffix(out.Results["ancestors"], "["+pid+"]") {
		t.Errorf("%v", out.Results)
	}
	if text := kept.Files["tree.txt"]; !strings.Contains(text, "\n  ") || !strings.Contains(text, "["+strconv.Itoa(sleep.Process.Pid)+"]") {
		t.Errorf("tree.txt: %q", text)
	}
	out, kept = operationtest.Succeed(t, b, map[string]string{"max": "1"})
	if n, _ := strconv.Atoi(out.Results["count"]); n < 3 || out.Results["drawn"] != "1" || strings.Count(kept.Files["tree.txt"], "\n") != 1 || out.Results["note"] == "" {
		t.Errorf("%v", out.Results)
	}
}

// PIDs were reused while the tree was read.
func TestProcessTreeOfACircle(t *testing.T) {
	stat := func(pid, ppid, state string) string {
		return pid + " (x) " + state + " " + ppid + " 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 250 0 0\n"
	}
	h := operationtest.HostOf(t, map[string]string{
		"/proc/1/stat": stat("1", "0", "S"), "/proc/2/stat": stat("2", "3", "D"), "/proc/3/stat": stat("3", "2", "Z"), "/proc/4/stat": stat("4", "1", "T"),
	})
	out, _ := operationtest.Succeed(t, ProcessTree(h), map[string]string{"pid": "2"})
	if r := out.Results; r["count"] != "2" || r["zombies"] != "1" || r["blockedProcesses"] != "x[2]" || r["ancestors"] != "x[3] > x[2]" {
		t.Errorf("%v", r)
	}
	out, _ = operationtest.Succeed(t, ProcessTree(h), nil)
	if r := out.Results; r["count"] != "2" || r["stopped"] != "1" {
		t.Errorf("%v", r)
	}
}

func TestOpenFiles(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/gone\x1b")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := os.Remove(file.Name()); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pid := strconv.Itoa(os.Getpid())
	b := OpenFiles(operationtest.RealHost())
	out, kept := operationtest.Succeed(t, b, map[string]string{"pid": pid})
	t.Log(out.Results)
	if r := out.Results; r["count"] != r["listed"] || r["sockets"] == "0" || r["deleted"] == "0" || !strings.Contains(r["deletedFiles"], `/gone\x1b`) || r["limit"] == "" {
		t.Errorf("%v", r)
	}
	if text := kept.Files["open-files.txt"]; !strings.Contains(text, `gone\x1b (deleted)`) || !strings.Contains(text, "socket:[") {
		t.Errorf("open-files.txt: %s", text)
	}
	out, _ = operationtest.Succeed(t, b, map[string]string{"pid": pid, "max": "1"})
	if out.Results["listed"] != "1" || out.Results["note"] == "" {
		t.Errorf("%v", out.Results)
	}
}
