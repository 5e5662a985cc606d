package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/operationtest"
)

func host() operation.Host { return operation.Host{FS: hostfs.New("/")} }

// run runs a built-in like a diagnosis does, and checks what holds for all built-ins.
func run(t *testing.T, b operation.Builtin, params map[string]string) (operation.Output, *operationtest.Artifacts, error) {
	t.Helper()
	files := &operationtest.Artifacts{Limit: 1 << 20}
	v, err := b.Fill(params)
	if err != nil {
		return operation.Output{}, files, err
	}
	out, err := b.Run(t.Context(), &operation.Call{Parameters: v, Artifacts: files, Log: slog.New(slog.DiscardHandler)})
	declared := map[string]bool{}
	for _, r := range b.Results {
		declared[r.Name] = true
	}
	size := 0
	for k, v := range out.Results {
		size += len(k) + len(v)
		if !declared[k] || len(v) > 2<<10 {
			t.Errorf("result %s of %d bytes, declared %v", k, len(v), declared[k])
		}
	}
	if size > 8<<10 {
		t.Errorf("%d bytes of results", size)
	}
	return out, files, err
}

// must runs a built-in that must not fail.
func must(t *testing.T, b operation.Builtin, params map[string]string) (operation.Output, *operationtest.Artifacts) {
	t.Helper()
	out, files, err := run(t, b, params)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(out.Results, out.Verdict)
	return out, files
}

// confirm runs a Check that must give a verdict; refute runs one that must be refuted.
func confirm(t *testing.T, b operation.Builtin, params map[string]string, reason, message string) operation.Output {
	t.Helper()
	out, _ := must(t, b, params)
	if out.Verdict == nil || out.Verdict.Reason != reason || !matches(out.Verdict.Message, message) {
		t.Errorf("verdict %+v, want %s %s", out.Verdict, reason, message)
	}
	return out
}

func refute(t *testing.T, b operation.Builtin, params map[string]string, reason, message string) {
	t.Helper()
	_, _, err := run(t, b, params)
	var no *operation.Refuted
	if !errors.As(err, &no) {
		t.Fatalf("error %v, want it refuted", err)
	}
	t.Log(no)
	if no.Reason != reason || !matches(no.Message, message) {
		t.Errorf("%v, want %s %s", no, reason, message)
	}
}

// fail runs a built-in that must return an error.
func fail(t *testing.T, b operation.Builtin, params map[string]string, message string) {
	t.Helper()
	_, _, err := run(t, b, params)
	var no *operation.Refuted
	if err == nil || errors.As(err, &no) || !matches(err.Error(), message) {
		t.Errorf("error %v, want %s", err, message)
	}
}

func matches(s, pattern string) bool { return regexp.MustCompile(pattern).MatchString(s) }

func wantResults(t *testing.T, out operation.Output, want map[string]string) {
	t.Helper()
	for k, pattern := range want {
		if got := out.Results[k]; !matches(got, pattern) {
			t.Errorf("%s is %q, want %s", k, got, pattern)
		}
	}
}

func inode(n *netlab.Net) string { return strconv.FormatUint(uint64(n.Inode), 10) }

// labHost returns a node whose own namespace is the first one given. It has no processes but those
// of the namespaces and this one.
func labHost(t *testing.T, node *netlab.Net, others ...*netlab.Net) operation.Host {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	link := func(name, to string) {
		// A namespace's thread may be the main thread of this process, whose TID is the PID.
		if err := os.Symlink(to, filepath.Join(root, "proc", name)); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
	link("1", fmt.Sprintf("/proc/%d", holder(node)))
	for _, n := range others {
		link(strconv.Itoa(holder(n)), fmt.Sprintf("/proc/%d", holder(n)))
	}
	link(strconv.Itoa(os.Getpid()), fmt.Sprintf("/proc/%d", os.Getpid()))
	link("self", strconv.Itoa(os.Getpid()))
	link("sys", "/proc/sys")
	return operation.Host{FS: hostfs.New(root)}
}

// holder returns the process that holds a namespace of the lab.
func holder(n *netlab.Net) int {
	return netlook.NewNamespaces(hostfs.New("/"), time.Second).Process(n.Inode)
}

// podOf moves the process of a namespace into a cgroup named like a pod's, and returns the pod's
// UID and the cgroup.
func podOf(t *testing.T, n *netlab.Net) (uid, cgroup string) {
	t.Helper()
	l, err := hostfs.New("/").CgroupLayout()
	if err != nil {
		t.Fatal(err)
	}
	mount := l.Unified
	if mount == "" {
		mount = l.Controllers["memory"]
	}
	pid := holder(n)
	uid = "00000000-0000-4000-8000-" + ("000000000000" + strconv.Itoa(pid))[len(strconv.Itoa(pid)):]
	top := "/kernosis-optest-" + strconv.Itoa(pid)
	cgroup = top + "/kubepods/pod" + uid
	if err := os.MkdirAll(mount+cgroup, 0o755); err != nil {
		t.Skipf("no cgroup can be made: %v", err)
	}
	home := cgroupAt(t, pid, mount)
	t.Cleanup(func() {
		if err := os.WriteFile(mount+home+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0); err != nil {
			t.Error(err)
		}
		for _, d := range []string{cgroup, top + "/kubepods", top} {
			if err := os.Remove(mount + d); err != nil {
				t.Error(err)
			}
		}
	})
	if err := os.WriteFile(mount+cgroup+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0); err != nil {
		t.Fatal(err)
	}
	return uid, cgroup
}

// cgroupAt returns the cgroup of a process in the hierarchy of a mount.
func cgroupAt(t *testing.T, pid int, mount string) string {
	t.Helper()
	groups, err := hostfs.New("/").ProcCgroups(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		for c := range strings.SplitSeq(g.Controllers, ",") {
			if g.Hierarchy == 0 && strings.HasSuffix(mount, "unified") || c != "" && filepath.Base(mount) == c || g.Hierarchy == 0 && mount == "/sys/fs/cgroup" {
				return g.Path
			}
		}
	}
	t.Fatalf("process %d is not on %s", pid, mount)
	return ""
}

// keepProbing probes an address repeatedly until the test calls stop.
func keepProbing(n *netlab.Net, to string) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			default:
				_ = n.Probe(to, 100*time.Millisecond, "") // a failure is what the test expects
			}
		}
	}()
	return func() { close(end); <-done }
}

// silent is a handler that reads everything and answers nothing.
func silent(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func timeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}
