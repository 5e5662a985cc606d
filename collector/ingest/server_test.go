package ingest

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/ingest/client"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// folder returns a folder with a short path that other users may enter.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "kernosis-report-") //nolint:usetesting // other users may not enter t.TempDir's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// serve serves sources on a socket until the test ends.
func serve(t *testing.T, socket string, sources []Source) (*Intake, *reported, *Server) {
	t.Helper()
	in, l := runIntake(t, Config{Sources: sources})
	s, err := Listen(socket, in)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
		if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
	})
	return in, l, s
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to be other users")
	}
}

// binaryForAll returns a copy of this binary that other users may run.
func binaryForAll(t *testing.T) {
	t.Helper()
	raw, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder(t), "client")
	testenv.WriteProgram(t, path, string(raw))
	old := os.Args[0]
	os.Args[0] = path
	t.Cleanup(func() { os.Args[0] = old })
}

func TestUsers(t *testing.T) {
	needRoot(t)
	binaryForAll(t)
	const report4711 = `{"source":"door-monitor","conditions":[{"type":"DoorOpen","status":true,"reason":"WindBlew","message":"open"}]}`
	t.Run("root alone", func(t *testing.T) {
		socket := filepath.Join(folder(t), "run", "report.sock")
		_, l, _ := serve(t, socket, sources()[:1])
		info, err := os.Lstat(socket)
		if err != nil || info.Mode() != fs.ModeSocket|0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		if code, text := child(t, 0, socket, `{"source":"gpu-monitor","conditions":[{"type":"GPUHot","status":false}]}`); code != 200 {
			t.Errorf("root: %d %s", code, text)
		}
		if code, text := child(t, 4711, socket, report4711); code != 0 || !strings.Contains(text, "permission denied") {
			t.Errorf("4711: %d %s", code, text)
		}
		if got := l.take(); len(got) != 1 {
			t.Errorf("reported %q", got)
		}
	})
	t.Run("others", func(t *testing.T) {
		socket := filepath.Join(folder(t), "report.sock")
		in, l, _ := serve(t, socket, sources())
		if code, text := child(t, 4711, socket, report4711); code != 200 {
			t.Errorf("4711: %d %s", code, text)
		}
		if got := l.take(); len(got) != 1 || got[0] != "door-monitor/DoorOpen problem WindBlew: open" {
			t.Errorf("reported %q", got)
		}
		// One user that may report, but not for this source; and one that may not report at all.
		if code, text := child(t, 4711, socket, `{"source":"gpu-monitor"}`); code != 403 || !strings.Contains(text, "may not report for this source") {
			t.Errorf("4711 as gpu-monitor: %d %s", code, text)
		}
		if code, text := child(t, 4712, socket, report4711); code != 403 || !strings.Contains(text, "user 4712 may not report") {
			t.Errorf("4712: %d %s", code, text)
		}
		if got := l.take(); len(got) != 0 {
			t.Errorf("reported %q", got)
		}
		counted(t, in.counts.reports, 2, "", string(Forbidden))
	})
}

func post(t *testing.T, socket, path, text string) (int, http.Header) {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Post("http://x"+path, "", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header
}

func TestHTTP(t *testing.T) {
	socket := filepath.Join(folder(t), "report.sock")
	self := uint32(os.Geteuid())
	in, l, _ := serve(t, socket, []Source{{Name: "a", UIDs: []uint32{self}, Conditions: []string{"Bad"}}})
	for _, tc := range []struct {
		path, body string
		want       int
	}{
		{client.Path, `{"source":"a"}`, 200},
		{client.Path, `{"source":"b"}`, 403},
		{client.Path, `{`, 400},
		{client.Path, strings.Repeat(" ", client.MaxBody+1), 413},
		{"/conditions", `{"source":"a"}`, 404},
	} {
		if got, _ := post(t, socket, tc.path, tc.body); got != tc.want {
			t.Errorf("%s %.20q: %d, want %d", tc.path, tc.body, got, tc.want)
		}
	}
	status, header := 0, http.Header{}
	for range reportBurst + 5 {
		if status, header = post(t, socket, client.Path, `{"source":"a"}`); status != 200 {
			break
		}
	}
	if status != 429 || header.Get("Retry-After") != "1" {
		t.Errorf("%d, %v", status, header)
	}
	if got := l.take(); len(got) != 0 {
		t.Errorf("reported %q", got)
	}
	counted(t, in.counts.reports, 1, "", string(TooLarge))
	counted(t, in.counts.reports, 1, "a", string(RateLimit))
}

// A user's many connections leave room for those of others.
func TestConnectionsAreBounded(t *testing.T) {
	needRoot(t)
	socket := filepath.Join(folder(t), "report.sock")
	_, _, s := serve(t, socket, sources())
	for range maxConnsPerUser + 3 {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	testenv.UntilShown(t, "3 are refused", 10*time.Second, func() (bool, string) {
		n := testutil.ToFloat64(s.Metrics())
		return n == 3, strconv.FormatFloat(n, 'f', 0, 64)
	})
	binaryForAll(t)
	if code, text := child(t, 4711, socket, `{"source":"door-monitor"}`); code != 200 {
		t.Errorf("%d %s", code, text)
	}
}

func TestSocketPlace(t *testing.T) {
	in, err := New(Config{Sources: sources()[:1]})
	if err != nil {
		t.Fatal(err)
	}
	listen := func(path string) error {
		s, err := Listen(path, in)
		if err == nil {
			t.Cleanup(func() { s.Close() })
		}
		return err
	}
	refused := func(path, why string) {
		t.Helper()
		if err := listen(path); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: got %v, want %q", path, err, why)
		}
	}
	dir := folder(t)
	path := filepath.Join(dir, "a", "report.sock")
	if err := listen(path); err != nil {
		t.Fatal(err)
	}
	refused(path, "another process listens there")

	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(file, "not a socket: it is not replaced")
	if raw, err := os.ReadFile(file); err != nil || string(raw) != "precious" {
		t.Errorf("%q, %v", raw, err)
	}
	refused("report.sock", "is not absolute")
	refused(filepath.Join(dir, strings.Repeat("x", 100)), "at most")

	// Left behind by a process that was killed.
	stale := filepath.Join(dir, "stale.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if err := listen(stale); err != nil {
		t.Errorf("stale socket: %v", err)
	}

	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	refused(filepath.Join(open, "report.sock"), "is writable by others")
	if err := os.Symlink(open, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	refused(filepath.Join(dir, "link", "report.sock"), "is not a folder")
	if os.Geteuid() == 0 {
		foreign := filepath.Join(dir, "foreign")
		if err := os.Mkdir(foreign, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(foreign, 4711, 4711); err != nil {
			t.Fatal(err)
		}
		refused(filepath.Join(foreign, "report.sock"), "belongs to user 4711")
	}

	// A socket that another process has created in its place in the meantime is not removed.
	taken := filepath.Join(dir, "taken.sock")
	s, err := Listen(taken, in)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(taken); err != nil {
		t.Fatal(err)
	}
	if err := listen(taken); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(taken); err != nil {
		t.Error("another's socket was removed")
	}
}

// Root in a container has the user id of the machine's root, and may have the socket mounted.
func TestRootOfAPodIsNotTheMachines(t *testing.T) {
	needRoot(t)
	const uid = "6a1f2c7e-8b1a-4d60-9c55-0d4c8f2b7a12"
	group := agenttest.PodGroup(t, uid, 256<<20)
	list := sources()
	list[0].Pods = false
	open := Source{Name: "of-any-pod", Pods: true}
	socket := filepath.Join(folder(t), "report.sock")
	_, _, _ = serve(t, socket, append(list, open))
	post := func(name, join string) (int, string) {
		t.Helper()
		// The shell joins the control group, and then becomes the process that reports.
		cmd := exec.CommandContext(t.Context(), "sh", "-c", `[ -z "$1" ] || echo $$ >"$1/cgroup.procs" && exec "$0"`, os.Args[0], join)
		cmd.Env = append(os.Environ(), asClient+"="+socket)
		cmd.Stdin = strings.NewReader(string(body(t, status(name))))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		code, rest, _ := strings.Cut(string(out), " ")
		n, _ := strconv.Atoi(code)
		return n, rest
	}
	for _, c := range []struct {
		name, group string
		code        int
		says        string
	}{
		{list[0].Name, "", 200, ""},
		{list[0].Name, group, 403, "of another pod or container"},
		{open.Name, group, 200, ""},
	} {
		if code, text := post(c.name, c.group); code != c.code || !strings.Contains(text, c.says) {
			t.Errorf("%s from %q: %d %s, want %d %q", c.name, c.group, code, text, c.code, c.says)
		}
	}
}

// podOf finds the pod or container of a process by its control groups.
func TestHomes(t *testing.T) {
	const uid, id = "6a1f2c7e-8b1a-4d60-9c55-0d4c8f2b7a12", "8a8a8a8a8a8a8a8a8a8a8a8a8a8a8a8a8a8a8a8a8a8a8a8a8a8a8a8a8a8a8a8a"
	for path, pod := range map[string]string{
		"/": "", "/system.slice/gpu.service": "", "/user.slice/user-0.slice/session-1.scope": "",
		"/kubepods/burstable/pod" + uid + "/" + id: uid,
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/cri-containerd-" + id + ".scope": uid,
		"/docker/" + id:                     id,
		"…/":                                "",
		"…/pod" + uid + "/" + id:            uid,
		"…/besteffort/pod" + uid + "/" + id: uid,
	} {
		if got := podOf([]hostfs.ProcCgroup{{Path: path}}); got != pod {
			t.Errorf("%s: %q, want %q", path, got, pod)
		}
	}
}
