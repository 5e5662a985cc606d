package operation

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
	"github.com/kernosis/kernosis/vmtest/netlab"
)

// netArtifacts keeps artifacts in a folder, at most limit bytes of each.
type netArtifacts struct {
	dir   string
	limit int
}

func (a netArtifacts) Create(name string) (io.WriteCloser, error) {
	f, err := os.Create(filepath.Join(a.dir, name))
	return &netArtifactFile{File: f, left: a.limit}, err
}

type netArtifactFile struct {
	*os.File
	left int
}

func (f *netArtifactFile) Write(b []byte) (int, error) {
	if len(b) > f.left {
		return 0, ErrArtifactBudget
	}
	f.left -= len(b)
	return f.File.Write(b)
}

func netHost() Host { return Host{FS: hostfs.New("/")} }

// netRun runs a built-in as a diagnosis does, and checks what holds for all.
func netRun(t *testing.T, b Builtin, params map[string]string) (Output, netArtifacts, error) {
	t.Helper()
	files := netArtifacts{dir: t.TempDir(), limit: 1 << 20}
	v, err := b.Fill(params)
	if err != nil {
		return Output{}, files, err
	}
	out, err := b.Run(t.Context(), &Call{Parameters: v, Artifacts: files, Log: slog.New(slog.DiscardHandler)})
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

// netMust is netRun of what must not fail.
func netMust(t *testing.T, b Builtin, params map[string]string) (Output, netArtifacts) {
	t.Helper()
	out, files, err := netRun(t, b, params)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(out.Results, out.Verdict)
	return out, files
}

// netConfirm runs a Check whose cause is so; netRefute one whose is not.
func netConfirm(t *testing.T, b Builtin, params map[string]string, reason, message string) Output {
	t.Helper()
	out, _ := netMust(t, b, params)
	if out.Verdict == nil || out.Verdict.Reason != reason || !netMatches(out.Verdict.Message, message) {
		t.Errorf("verdict %+v, want %s %s", out.Verdict, reason, message)
	}
	return out
}

func netRefute(t *testing.T, b Builtin, params map[string]string, reason, message string) {
	t.Helper()
	_, _, err := netRun(t, b, params)
	var no *Refuted
	if !errors.As(err, &no) {
		t.Fatalf("error %v, want it refuted", err)
	}
	t.Log(no)
	if no.Reason != reason || !netMatches(no.Message, message) {
		t.Errorf("%v, want %s %s", no, reason, message)
	}
}

// netFail runs what can't look.
func netFail(t *testing.T, b Builtin, params map[string]string, message string) {
	t.Helper()
	_, _, err := netRun(t, b, params)
	var no *Refuted
	if err == nil || errors.As(err, &no) || !netMatches(err.Error(), message) {
		t.Errorf("error %v, want %s", err, message)
	}
}

func netMatches(s, pattern string) bool { return regexp.MustCompile(pattern).MatchString(s) }

func netWant(t *testing.T, out Output, want map[string]string) {
	t.Helper()
	for k, pattern := range want {
		if got := out.Results[k]; !netMatches(got, pattern) {
			t.Errorf("%s is %q, want %s", k, got, pattern)
		}
	}
}

func (a netArtifacts) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(a.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func netInode(n *netlab.Net) string { return strconv.FormatUint(uint64(n.Inode), 10) }

// netLabHost is a node whose own namespace is the first given, and on which no other
// processes are than those of the namespaces and this one.
func netLabHost(t *testing.T, node *netlab.Net, others ...*netlab.Net) Host {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	link := func(name, to string) {
		// A namespace's thread may be this process' first one, which has its number.
		if err := os.Symlink(to, filepath.Join(root, "proc", name)); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
	link("1", fmt.Sprintf("/proc/%d", netHolder(node)))
	for _, n := range others {
		link(strconv.Itoa(netHolder(n)), fmt.Sprintf("/proc/%d", netHolder(n)))
	}
	link(strconv.Itoa(os.Getpid()), fmt.Sprintf("/proc/%d", os.Getpid()))
	link("self", strconv.Itoa(os.Getpid()))
	link("sys", "/proc/sys")
	return Host{FS: hostfs.New(root)}
}

// netHolder is the process that lives in a namespace of the lab.
func netHolder(n *netlab.Net) int {
	return netlook.NewNamespaces(hostfs.New("/"), time.Second).Process(n.Inode)
}

// netPod moves the process of a namespace into a cgroup named like a pod's, and returns
// the pod's UID and the cgroup.
func netPod(t *testing.T, n *netlab.Net) (uid, cgroup string) {
	t.Helper()
	l, err := hostfs.New("/").CgroupLayout()
	if err != nil {
		t.Fatal(err)
	}
	mount := l.Unified
	if mount == "" {
		mount = l.Controllers["memory"]
	}
	pid := netHolder(n)
	uid = "00000000-0000-4000-8000-" + ("000000000000" + strconv.Itoa(pid))[len(strconv.Itoa(pid)):]
	top := "/kernosis-optest-" + strconv.Itoa(pid)
	cgroup = top + "/kubepods/pod" + uid
	if err := os.MkdirAll(mount+cgroup, 0o755); err != nil {
		t.Skipf("no cgroup can be made: %v", err)
	}
	home := netCgroupAt(t, pid, mount)
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

// netCgroupAt is where a process is on the hierarchy of a mount.
func netCgroupAt(t *testing.T, pid int, mount string) string {
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

// netKeepProbing probes an address again and again until the test calls what it
// returns.
func netKeepProbing(n *netlab.Net, to string) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			default:
				_ = n.Probe(to, 100*time.Millisecond, "") // that it fails is what is looked at
			}
		}
	}()
	return func() { close(end); <-done }
}

// netSilent is a handler that takes what comes and answers nothing.
func netSilent(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func netTimeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}
