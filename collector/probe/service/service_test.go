package service

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/dns/dnsmessage"
	"google.golang.org/grpc"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/collector/probe/active"
	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testenv"
	"github.com/kernosis/kernosis/vmtest/testserver"
)

func TestMain(m *testing.M) { os.Exit(testenv.CheckLeaks(m.Run)) }

// plenty is longer than anything takes that is not meant to time out.
const plenty = 30 * time.Second

// node returns a node whose network namespace is that of a process.
func node(t *testing.T, pid int) hostfs.FS {
	t.Helper()
	root, err := os.MkdirTemp("", "node") //nolint:usetesting // t.TempDir's may be too long for a socket
	if err == nil {
		err = errors.Join(os.Mkdir(filepath.Join(root, "proc"), 0o755), os.Symlink(fmt.Sprintf("/proc/%d", pid), filepath.Join(root, "proc", "1")))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	return hostfs.New(root)
}

// ownNode returns a node whose network namespace is this process's.
func ownNode(t *testing.T) hostfs.FS {
	t.Helper()
	return node(t, netlab.Holder(t))
}

// tape records what is reported.
type tape struct {
	mu       sync.Mutex
	reported []string
	changed  chan struct{}
	data     []event.ProbeData
}

func (p *tape) report(ev *event.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch ev.Kind {
	case event.Source:
		if ev.SourceUp.Gone {
			p.reported = append(p.reported, "gone "+ev.SourceUp.Stem)
			break
		}
		p.reported = append(p.reported, fmt.Sprintf("source %s %v %s", ev.SourceUp.Stem, ev.SourceUp.Up, ev.SourceUp.Reason))
	default:
		p.reported = append(p.reported, fmt.Sprintf("%s %s %d/%d %s", ev.Kind, ev.Probe.Name, ev.Probe.Failures, ev.Probe.Threshold, ev.Probe.Verdict))
		p.data = append(p.data, *ev.Probe)
	}
	if ev.CPU != event.NoCPU || ev.Time.IsZero() || ev.BootTime <= 0 || ev.Source != source || ev.Container != nil {
		p.reported = append(p.reported, fmt.Sprintf("wrong: %+v", ev))
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// wait returns and clears what was reported up to a text.
func (p *tape) wait(t *testing.T, until string) []string {
	t.Helper()
	late := time.After(testenv.Within(plenty))
	for {
		p.mu.Lock()
		i := slices.IndexFunc(p.reported, func(s string) bool { return strings.Contains(s, until) })
		changed := p.changed
		if i >= 0 {
			reported := slices.Clone(p.reported[:i+1])
			p.reported = p.reported[i+1:]
			p.mu.Unlock()
			return reported
		}
		reported := slices.Clone(p.reported)
		p.mu.Unlock()
		select {
		case <-changed:
		case <-late:
			t.Fatalf("no %q in %q", until, reported)
		}
	}
}

// earlier returns, by stem, which services an earlier run of the agent had up.
func earlier(stem string) (ago time.Duration, ok bool) {
	switch stem {
	case "service/kept":
		return 59 * time.Second, true
	case "service/long-ago":
		return time.Minute, true
	}
	return 0, false
}

// start runs services on a node.
func start(t *testing.T, fs hostfs.FS, services ...Service) (*Runner, *tape) {
	t.Helper()
	p := &tape{changed: make(chan struct{})}
	r := New(Config{FS: fs, Prober: active.New(fs), Report: p.report, Earlier: earlier, Start: time.Now().Add(-time.Hour)})
	if err := r.Add(services...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r, p
}

// A service is failed after a threshold of failures, and healthy after a threshold of successes.
func TestThresholds(t *testing.T) {
	var broken atomic.Bool
	var succeeded atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		succeeded.Add(1)
	}))
	defer s.Close()
	svc := Service{Name: "web", Handler: "http", Address: s.Listener.Addr().String(), Condition: "WebDown", FailureThreshold: 3, SuccessThreshold: 4}.Filled()
	svc.Period = 10 * time.Millisecond
	r, tape := start(t, ownNode(t), svc)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(r)

	got := tape.wait(t, "probe.recovered")
	if !slices.Equal(got, []string{"source service/web true ", "probe.recovered web 0/3 "}) || succeeded.Load() < 4 {
		t.Errorf("%q after %d", got, succeeded.Load())
	}
	broken.Store(true)
	if got = tape.wait(t, "3/3"); !slices.Equal(got, []string{"probe web 1/3 bad-status", "probe web 2/3 bad-status", "probe web 3/3 bad-status"}) {
		t.Errorf("%q", got)
	}
	succeeded.Store(0)
	broken.Store(false)
	got = tape.wait(t, "probe.recovered")
	for _, line := range got[:len(got)-1] {
		if !strings.HasPrefix(line, "probe web ") {
			t.Errorf("%q", got)
		}
	}
	if succeeded.Load() < 4 {
		t.Errorf("well after %d successes", succeeded.Load())
	}
	tape.mu.Lock()
	d := tape.data[1]
	tape.mu.Unlock()
	if d.Probe != event.ProbeService || d.Pod+d.Namespace+d.Container != "" || d.Handler != "http" || d.Endpoint != svc.Address+"/" || d.Feed != event.ProbeActive ||
		d.Period != event.Duration(svc.Period) || d.Timeout != event.Duration(3*time.Second) || !strings.HasPrefix(d.Cause, "HTTP status 500") {
		t.Errorf("%+v", d)
	}
	if lint, err := testutil.GatherAndLint(reg); err != nil || len(lint) > 0 {
		t.Errorf("%+v, %v", lint, err)
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader("# HELP kernosis_service_up Whether a service of the node counts as healthy; absent while that is unknown.\n# TYPE kernosis_service_up gauge\nkernosis_service_up{service=\"web\"} 1\n"), "kernosis_service_up"); err != nil {
		t.Error(err)
	}
	if err := r.Add(svc); err == nil {
		t.Error("a service twice")
	}
}

// What was known stays known after a restart, unless the restart took as long as detecting it
// again, until the service is removed.
func TestRestart(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var all []Service
	for _, name := range []string{"long-ago", "kept", "new"} {
		s := Service{Name: name, Handler: "tcp", Address: l.Addr().String(), Condition: "Down", FailureThreshold: 2, SuccessThreshold: 2}.Filled()
		s.Period = 30 * time.Second
		all = append(all, s)
	}
	r, tape := start(t, ownNode(t), all...)
	if got := tape.wait(t, "kept"); !slices.Equal(got, []string{"source service/kept true "}) {
		t.Errorf("%q", got)
	}
	r.Remove("kept")
	tape.wait(t, "gone service/kept")
}

// A service that never answered is unknown until a threshold of failures, then failed.
func TestNeverWell(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	svc := Service{Name: "gone", Handler: "tcp", Address: l.Addr().String(), Condition: "X"}.Filled()
	svc.Period = 10 * time.Millisecond
	_, tape := start(t, ownNode(t), svc)
	if got := tape.wait(t, "3/3"); !slices.Equal(got, []string{"probe gone 1/3 refused", "probe gone 2/3 refused", "source service/gone true ", "probe gone 3/3 refused"}) {
		t.Errorf("%q", got)
	}
}

// A probe that can't be made says nothing about the service.
func TestNotMade(t *testing.T) {
	program := filepath.Join(t.TempDir(), "check")
	svc := Service{Name: "own", Handler: "exec", Command: []string{program, "-x"}, Condition: "X"}.Filled()
	svc.Period = 10 * time.Millisecond
	r, tape := start(t, ownNode(t), svc)
	if got := tape.wait(t, "source"); len(got) != 1 || !strings.Contains(got[0], "source service/own false can't run the probe: ") || !strings.Contains(got[0], "no such file") {
		t.Errorf("%q", got)
	}
	if n := testutil.CollectAndCount(r, "kernosis_service_up"); n != 0 {
		t.Errorf("%d, and nobody knows how it is", n)
	}
	// Renamed into place, because a program that is being written can't be run.
	testenv.WriteProgram(t, program+".new", "#!/bin/sh\necho \"got $1\"; exit 1\n")
	if err := os.Rename(program+".new", program); err != nil {
		t.Fatal(err)
	}
	got := tape.wait(t, "3/3")
	if !slices.Equal(got, []string{"probe own 1/3 exec-failed", "probe own 2/3 exec-failed", "source service/own true ", "probe own 3/3 exec-failed"}) {
		t.Errorf("%q", got)
	}
	tape.mu.Lock()
	defer tape.mu.Unlock()
	if d := tape.data[0]; !regexp.MustCompile(`^check -x ended with exit code 1 after .*: got -x$`).MatchString(d.Cause) || d.Endpoint != program+" -x" {
		t.Errorf("%+v", d)
	}
}

// A program that can't be killed is not started a second time.
func TestStuckProgram(t *testing.T) {
	testenv.HoldKernel(t) // others would detect the hung task
	disk := disklab.NewExt4(t, 8<<20)
	runs := filepath.Join(t.TempDir(), "runs")
	svc := Service{Name: "own", Handler: "exec", Command: []string{testenv.Script(t, "echo >>"+runs+"\n: >"+disk.Dir+"/file")}, Timeout: testenv.Within(time.Second)}
	r := New(Config{FS: hostfs.New("/"), Prober: active.New(hostfs.FS{}), Report: func(*event.Event) {}})
	if err := r.Add(svc); err != nil {
		t.Fatal(err)
	}
	probed := func() probe.Outcome {
		t.Helper()
		o, err := r.Probe(t.Context(), &probe.Request{Container: &probe.Container{Name: "own"}})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	wantRuns := func(n int) {
		t.Helper()
		if b, err := os.ReadFile(runs); err != nil || len(b) != n {
			t.Errorf("%d runs, want %d: %v", len(b), n, err)
		}
	}
	thaw := disk.Freeze()
	if o := probed(); o.OK || !strings.HasSuffix(o.Detail.Cause, "and can't be killed: it is in uninterruptible sleep") {
		t.Fatalf("%+v", o)
	}
	o := probed()
	if d := o.Detail; o.OK || d.Verdict != event.VerdictExecSlow || !regexp.MustCompile(`^check.sh was not run: the last run, of .*Z, was killed, but has not ended$`).MatchString(d.Cause) {
		t.Errorf("%+v", o)
	}
	wantRuns(1)
	thaw()
	testenv.Until(t, "success", plenty, func() bool { return probed().OK })
	wantRuns(2)
}

// makes sends one probe and checks its outcome; an empty verdict means success.
func makes(t *testing.T, fs hostfs.FS, s Service, verdict, cause string) event.ProbeOutcome {
	t.Helper()
	m := maker{fs: fs, prober: active.New(fs)}
	s = s.Filled()
	o, err := m.make(t.Context(), &s, nil, nil)
	t.Logf("%+v, %v", o.Detail, err)
	if err != nil || o.OK != (verdict == "") || o.Detail.Verdict != verdict || !regexp.MustCompile(cause).MatchString(o.Detail.Cause) || o.At.IsZero() || o.Detail.Duration <= 0 {
		t.Errorf("%+v, %v; want %q %s", o, err, verdict, cause)
	}
	return o.Detail
}

// runtime is a container runtime that only reports its status.
type runtime struct {
	criapi.UnimplementedRuntimeServiceServer
	ready atomic.Bool
	hangs chan struct{} // closed: it answers
}

func (*runtime) Version(context.Context, *criapi.VersionRequest) (*criapi.VersionResponse, error) {
	return &criapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2.1"}, nil
}

func (r *runtime) Status(ctx context.Context, _ *criapi.StatusRequest) (*criapi.StatusResponse, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.hangs:
	}
	return &criapi.StatusResponse{Status: &criapi.RuntimeStatus{Conditions: []*criapi.RuntimeCondition{
		{Type: criapi.RuntimeReady, Status: r.ready.Load(), Reason: "Broken", Message: "snapshotter is gone"},
		{Type: criapi.NetworkReady, Status: false, Reason: "NetworkPluginNotReady"},
	}}}, nil
}

func TestRuntime(t *testing.T) {
	fs := ownNode(t)
	s := Service{Name: Runtime}
	makes(t, fs, s, event.VerdictRefused, "^no container runtime listens: none of /run/containerd/containerd.sock, ")
	s.Socket = "/cri.sock"
	d := makes(t, fs, s, event.VerdictRefused, "^nothing listens at /cri.sock: there is no such socket$")
	if d.Errno != "ENOENT" {
		t.Errorf("%+v", d)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fs.Path("/cri.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	r := &runtime{hangs: make(chan struct{})}
	stop := testserver.GRPC(t, l, func(s *grpc.Server) { criapi.RegisterRuntimeServiceServer(s, r) })

	s.Timeout = 300 * time.Millisecond
	makes(t, fs, s, event.VerdictSilent, "^the container runtime at /cri.sock accepts connections but does not answer within 300ms$")
	close(r.hangs)
	s.Timeout = plenty
	d = makes(t, fs, s, event.VerdictStatus, "^containerd v2.1 at /cri.sock: RuntimeReady is false: Broken: snapshotter is gone$")
	if d.Status != "RuntimeReady=false" {
		t.Errorf("%+v", d)
	}
	r.ready.Store(true)
	makes(t, fs, s, "", "")
	stop()
	makes(t, fs, s, event.VerdictRefused, "^nothing listens at /cri.sock: the socket's process has ended$")
	// On most nodes /var/run is an absolute link.
	if err := os.Symlink("/", fs.Path("/linked")); err != nil {
		t.Fatal(err)
	}
	linked := s
	linked.Socket = "/linked/cri.sock"
	makes(t, fs, linked, event.VerdictRefused, "^nothing listens at /linked/cri.sock: the socket's process has ended$")

	if err := os.Remove(fs.Path("/cri.sock")); err != nil {
		t.Fatal(err)
	}
	again, err := net.Listen("unix", fs.Path("/cri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	testserver.GRPC(t, again, func(*grpc.Server) {}) // no runtime
	makes(t, fs, s, event.VerdictStatus, "^the container runtime at /cri.sock answers Unimplemented: unknown service runtime.v1.RuntimeService")
}

// Docker's containerd has a socket too, but no CRI: cri-dockerd behind it is the runtime.
func TestRuntimeBesideDocker(t *testing.T) {
	fs := ownNode(t)
	serve := func(socket string, register func(*grpc.Server)) (stop func()) {
		path := fs.Path(socket)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		return testserver.GRPC(t, l, register)
	}
	find := func() int { return len(Find(t.Context(), fs, active.New(fs), []string{Runtime})) }
	serve("/run/containerd/containerd.sock", func(*grpc.Server) {})
	s := Service{Name: Runtime}.Filled()
	m := maker{fs: fs, prober: active.New(fs)}
	if o, err := m.make(t.Context(), &s, nil, nil); err == nil || !strings.Contains(err.Error(), "/run/containerd/containerd.sock answers Unimplemented") {
		t.Errorf("without any CRI: %+v, %v", o, err)
	}
	if n := find(); n != 0 {
		t.Errorf("%d runtimes found without any CRI", n)
	}
	r := &runtime{hangs: make(chan struct{})}
	close(r.hangs)
	r.ready.Store(true)
	stop := serve("/run/cri-dockerd.sock", func(s *grpc.Server) { criapi.RegisterRuntimeServiceServer(s, r) })
	makes(t, fs, s, "", "")
	if n := find(); n != 1 {
		t.Errorf("%d runtimes found, want 1", n)
	}
	stop()
	makes(t, fs, s, event.VerdictRefused, "^nothing listens at /run/cri-dockerd.sock: the socket's process has ended$")
}

// nameServer starts a server that answers each question according to its name.
func nameServer(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = c.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			var q dnsmessage.Message
			if q.Unpack(buf[:n]) != nil || len(q.Questions) != 1 {
				continue
			}
			rcode, ok := map[string]dnsmessage.RCode{
				"well.": dnsmessage.RCodeSuccess, "none.": dnsmessage.RCodeNameError, "broken.": dnsmessage.RCodeServerFailure,
			}[q.Questions[0].Name.String()]
			if !ok {
				continue
			}
			a := dnsmessage.Message{Header: dnsmessage.Header{ID: q.ID, Response: true, RCode: rcode}, Questions: q.Questions}
			b, err := a.Pack()
			if err == nil {
				_, err = c.WriteTo(b, from)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}()
	return c.LocalAddr().String()
}

func TestNames(t *testing.T) {
	fs := ownNode(t)
	at := nameServer(t)
	s := Service{Name: Resolver, Address: at, Query: "well"}
	makes(t, fs, s, "", "")
	s.Query = "none"
	makes(t, fs, s, "", "")
	s.Query = "broken"
	if d := makes(t, fs, s, event.VerdictStatus, "^name server "+at+" answers SERVFAIL to broken.$"); d.Status != "SERVFAIL" {
		t.Errorf("%+v", d)
	}
	s.Query, s.Timeout = "silent", 200*time.Millisecond
	makes(t, fs, s, event.VerdictNoAnswer, "^name server "+at+" does not answer within 200ms$")
	gone, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	s.Address, s.Timeout = gone.LocalAddr().String(), plenty
	makes(t, fs, s, event.VerdictRefused, "^no name server listens at")
	// The node's name servers, of which there are several: none listens at port 53 here.
	conf := fs.Path("/etc/resolv.conf")
	s.Address = ""
	m := maker{fs: fs, prober: active.New(fs)}
	filled := s.Filled()
	if o, err := m.make(t.Context(), &filled, nil, nil); err == nil {
		t.Errorf("without a resolv.conf: %+v", o)
	}
	if err := errors.Join(os.Mkdir(filepath.Dir(conf), 0o755), os.WriteFile(conf, []byte("nameserver 127.0.0.77\nnameserver 127.0.0.78\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if d := makes(t, fs, s, event.VerdictRefused, "127.0.0.77:53"); len(d.Evidence) != 1 || !strings.Contains(d.Evidence[0], "127.0.0.78:53") {
		t.Errorf("%+v", d)
	}
}

// With the node's file system in a folder, an absolute link leads below that folder.
func TestLinkedResolvConf(t *testing.T) {
	fs := ownNode(t)
	conf := fs.Path("/run/netconfig/resolv.conf")
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(conf), 0o755), os.Mkdir(fs.Path("/etc"), 0o755),
		os.WriteFile(conf, []byte("nameserver 127.0.0.77\n"), 0o600), os.Symlink("/run/netconfig/resolv.conf", fs.Path("/etc/resolv.conf")),
	); err != nil {
		t.Fatal(err)
	}
	makes(t, fs, Service{Name: Resolver, Query: "well"}, event.VerdictRefused, "127.0.0.77:53")
}

func TestAPIServer(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/livez" {
			status = http.StatusTeapot
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "[-]etcd failed\n")
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	fs := ownNode(t)
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	s := Service{Name: APIServer, Address: server.Listener.Addr().String(), TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	for _, status = range []int{200, 401, 403} {
		makes(t, fs, s, "", "")
	}
	status = 500
	makes(t, fs, s, event.VerdictStatus, `^HTTP status 500 Internal Server Error from .*: \[-\]etcd failed$`)
	s.TLS = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	makes(t, fs, s, event.VerdictTLS, "^TLS handshake with .* failed: .*x509: certificate signed by unknown authority")

	// Another server, with a CA file.
	file := filepath.Join(t.TempDir(), "ca.pem")
	own := Service{Name: "registry", Handler: "https", Address: s.Address, Path: "/livez", CA: file, Condition: "X"}
	m := maker{fs: fs, prober: active.New(fs)}
	filled := own.Filled()
	if o, err := m.make(t.Context(), &filled, nil, nil); err == nil {
		t.Errorf("without the file: %+v", o)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	status = 200
	makes(t, fs, own, "", "")
	status = 401
	makes(t, fs, own, event.VerdictStatus, "^HTTP status 401")
}

// Only existing services are found, in the node's own network namespace.
func TestFind(t *testing.T) {
	n := netlab.New(t)
	fs := node(t, netlook.NewNamespaces(hostfs.New("/"), time.Second).Process(n.Inode))
	find := func() (names []string) {
		for _, s := range Find(t.Context(), fs, active.New(fs), Findable()) {
			names = append(names, s.Name)
		}
		return names
	}
	if got := find(); len(got) != 0 {
		t.Errorf("%q on a node without any", got)
	}
	serve := func(at, path string, answer int) {
		s := &http.Server{ReadHeaderTimeout: plenty, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != path {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			w.WriteHeader(answer)
		})}
		l := n.Listen(at, 10)
		done := make(chan error, 1)
		go func() { done <- s.Serve(l) }()
		t.Cleanup(func() { _ = s.Close(); <-done })
	}
	serve("127.0.0.1:10248", "/healthz", http.StatusOK)
	serve("127.0.0.1:10256", "/healthz", http.StatusOK) // an old kube-proxy
	if got := find(); !slices.Equal(got, []string{Kubelet, KubeProxy}) {
		t.Errorf("%q", got)
	}
}

func TestCheck(t *testing.T) {
	for _, s := range Known() {
		if s.Name == APIServer {
			s.Address = "10.96.0.1:443"
		}
		if errs := s.Check(); len(errs) > 0 {
			t.Errorf("%s: %v", s.Name, errs)
		}
		if again := s.Filled(); again.Endpoint() != s.Endpoint() || again.Condition != s.Condition {
			t.Errorf("%+v becomes %+v", s, again)
		}
	}
	// Its own fields stay; with another handler it takes no probe fields from the known service.
	s := Service{Name: Kubelet, Handler: "tcp", Address: "127.0.0.1:10250", Period: time.Minute, Condition: "KubeletGone"}.Filled()
	if s.Path != "" || s.Condition != "KubeletGone" || s.HealthyReason != "KubeletIsHealthy" || s.Period != time.Minute || len(s.Check()) != 0 {
		t.Errorf("%+v: %v", s, s.Check())
	}
	if s = (Service{Name: KubeProxy, Path: "/own"}).Filled(); s.Fallback != "" || s.Address != "127.0.0.1:10256" {
		t.Errorf("%+v", s)
	}
	for want, s := range map[string]Service{
		`name: "A b": want lower-case`:                            {Name: "A b", Handler: "tcp", Address: "a:1", Condition: "X"},
		`handler: "udp": want one of cri, dns, exec, grpc, http,`: {Name: "a", Handler: "udp", Condition: "X"},
		`handler: "": want one of`:                                {Name: "a", Condition: "X"},
		`address: is missing: want host:port`:                     {Name: "a", Handler: "tcp", Condition: "X"},
		`address: "10.0.0.1": want host:port`:                     {Name: "a", Handler: "tcp", Address: "10.0.0.1", Condition: "X"},
		`address: "a:0": want a host and a port`:                  {Name: "a", Handler: "tcp", Address: "a:0", Condition: "X"},
		`path: "x": want a path that begins with /`:               {Name: "a", Handler: "http", Address: "a:1", Path: "x", Condition: "X"},
		`path: is not used by handler tcp`:                        {Name: "a", Handler: "tcp", Address: "a:1", Path: "/x", Condition: "X"},
		`accept: 200, want a status from 400 to 599`:              {Name: "a", Handler: "http", Address: "a:1", Accept: []int{200}, Condition: "X"},
		`command: want a program by its absolute path`:            {Name: "a", Handler: "exec", Command: []string{"true"}, Condition: "X"},
		`socket: "x": want an absolute path`:                      {Name: "a", Handler: "cri", Socket: "x", Condition: "X"},
		`address: want the IP address of a name server`:           {Name: "a", Handler: "dns", Address: "dns.example", Condition: "X"},
		`query: "a..b." is not a DNS name`:                        {Name: "a", Handler: "dns", Query: "a..b", Condition: "X"},
		`condition: is missing`:                                   {Name: "a", Handler: "tcp", Address: "a:1"},
		`period: 10ms, want at least 1s`:                          {Name: "a", Handler: "tcp", Address: "a:1", Condition: "X", Period: 10 * time.Millisecond, Timeout: time.Millisecond},
		`timeout: 3s, want more than 0 and at most`:               {Name: "a", Handler: "tcp", Address: "a:1", Condition: "X", Period: time.Second},
		`failureThreshold: 101, want 1 to 100`:                    {Name: "a", Handler: "tcp", Address: "a:1", Condition: "X", FailureThreshold: 101},
		`successThreshold: 5 times the period 1m0s is more`:       {Name: "a", Handler: "tcp", Address: "a:1", Condition: "X", Period: time.Minute, SuccessThreshold: 5},
		`severity: "bad": want one of info, warning, critical`:    {Name: "a", Handler: "tcp", Address: "a:1", Condition: "X", Severity: "bad"},
	} {
		filled := s.Filled()
		errs := filled.Check()
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want) {
			t.Errorf("%s: %v", want, errs)
		}
	}
}
