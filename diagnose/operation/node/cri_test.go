package node

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimes "github.com/kernosis/kernosis/collector/cri"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/operationtest"
	"github.com/kernosis/kernosis/vmtest/testserver"
)

// fakeRuntime is a container runtime with configurable answers.
type fakeRuntime struct {
	cri.UnimplementedRuntimeServiceServer
	conditions []*cri.RuntimeCondition
	delay      time.Duration
	err        error
}

func (f *fakeRuntime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: "container\x1bd", RuntimeVersion: "v2.1.4", RuntimeApiVersion: "v1"}, f.err
}

func (f *fakeRuntime) Status(ctx context.Context, _ *cri.StatusRequest) (*cri.StatusResponse, error) {
	select {
	case <-time.After(f.delay):
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: f.conditions}}, nil
}

func ready(runtime, network bool) []*cri.RuntimeCondition {
	return []*cri.RuntimeCondition{
		{Type: cri.RuntimeReady, Status: runtime, Reason: "R", Message: "runtime\nsays"},
		{Type: cri.NetworkReady, Status: network, Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized"},
		{Type: "Other", Status: false, Reason: "O", Message: "o"},
	}
}

// serveCRI starts a runtime, and returns a host with its socket.
func serveCRI(t *testing.T, path string, register func(*grpc.Server)) operation.Host {
	t.Helper()
	root := t.TempDir()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	testserver.GRPC(t, ln, register)
	return operation.Host{FS: hostfs.New(root)}
}

func runtimeHost(t *testing.T, f *fakeRuntime) operation.Host {
	t.Helper()
	return serveCRI(t, "/run/crio/crio.sock", func(s *grpc.Server) { cri.RegisterRuntimeServiceServer(s, f) })
}

func TestRuntimeHealth(t *testing.T) {
	h := runtimeHost(t, &fakeRuntime{conditions: ready(true, false), delay: 20 * time.Millisecond})
	out, _, err := operationtest.Perform(t, RuntimeHealth(h), nil)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := time.ParseDuration(out.Results["latency"]); err != nil || d < 20*time.Millisecond {
		t.Errorf("latency %s", out.Results["latency"])
	}
	for key, want := range map[string]string{
		"socket": "/run/crio/crio.sock", "reachable": "true", "runtimeName": `container\x1bd`, "runtimeVersion": "v2.1.4", "apiVersion": "v1",
		"runtimeReady": "true", "networkReady": "false", "conditions": "NetworkReady: NetworkPluginNotReady: cni plugin not initialized; Other: O: o",
	} {
		if out.Results[key] != want {
			t.Errorf("%s is %q, want %q", key, out.Results[key], want)
		}
	}
	// Another socket is given, and the first one is not queried.
	out, _, err = operationtest.Perform(t, RuntimeHealth(h), map[string]string{"socket": "/run/none.sock"})
	if err != nil || out.Results["reachable"] != "false" || out.Results["socket"] != "/run/none.sock" || !strings.Contains(out.Results["error"], "no such file") || len(out.Results) != 3 {
		t.Errorf("%q, %v", out.Results, err)
	}
	if _, _, err := operationtest.Perform(t, RuntimeHealth(h), map[string]string{"socket": "run/crio/crio.sock"}); err == nil || !strings.Contains(err.Error(), "want an absolute path") {
		t.Error(err)
	}
	if _, _, err := operationtest.Perform(t, RuntimeHealth(operation.Host{FS: hostfs.New(t.TempDir())}), nil); !errors.Is(err, runtimes.ErrNotFound) {
		t.Error(err)
	}
}

// On most nodes /var/run is an absolute link, which leads below the host's root.
func TestRuntimeBelowAnAbsoluteLink(t *testing.T) {
	h := runtimeHost(t, &fakeRuntime{conditions: ready(true, true)})
	link := h.FS.Path("/var/run")
	if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink("/run", link)); err != nil {
		t.Fatal(err)
	}
	out, _, err := operationtest.Perform(t, RuntimeHealth(h), map[string]string{"socket": "/var/run/crio/crio.sock"})
	if err != nil || out.Results["reachable"] != "true" || out.Results["socket"] != "/var/run/crio/crio.sock" {
		t.Errorf("%q, %v", out.Results, err)
	}
}

func TestCheckRuntimeUnhealthy(t *testing.T) {
	for name, tt := range map[string]struct {
		f      fakeRuntime
		reason string
		want   string
	}{
		"runtime": {fakeRuntime{conditions: ready(false, false)}, "RuntimeNotReady", `container\x1bd v2.1.4 at /run/crio/crio.sock: RuntimeReady is false: R: runtime\nsays`},
		"network": {fakeRuntime{conditions: ready(true, false)}, "RuntimeNetworkNotReady", `: NetworkReady is false: NetworkPluginNotReady: cni plugin not initialized`},
		"silent":  {fakeRuntime{delay: time.Hour}, "RuntimeSilent", `container\x1bd v2.1.4 at /run/crio/crio.sock doesn't answer`},
		"slow":    {fakeRuntime{conditions: ready(true, true), delay: 150 * time.Millisecond}, "RuntimeSlow", " takes "},
		"error":   {fakeRuntime{err: errors.New("shim\x00 broke")}, "RuntimeUnreachable", `: shim\x00 broke`},
	} {
		t.Run(name, func(t *testing.T) {
			timeout := "30s"
			if name == "silent" {
				timeout = "2s"
			}
			out, _, err := operationtest.Perform(t, CheckRuntimeUnhealthy(runtimeHost(t, &tt.f)), map[string]string{"timeout": timeout, "maxLatency": "100ms"})
			if err != nil || out.Verdict == nil || out.Verdict.Reason != tt.reason || !strings.Contains(out.Verdict.Message, tt.want) {
				t.Errorf("%+v, %v", out.Verdict, err)
			}
		})
	}
	h := runtimeHost(t, &fakeRuntime{conditions: ready(true, true)})
	_, _, err := operationtest.Perform(t, CheckRuntimeUnhealthy(h), map[string]string{"maxLatency": "1m", "timeout": "1m"})
	if r, ok := errors.AsType[*operation.Refuted](err); !ok || r.Reason != "RuntimeHealthy" || !strings.HasPrefix(r.Message, `container\x1bd v2.1.4 at /run/crio/crio.sock is ready and answers in `) {
		t.Error(err)
	}
	// A socket without a listener, and one that is given but does not exist.
	dead := filepath.Join(h.FS.Path("/run"), "dead.sock")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	_ = ln.Close()
	for socket, want := range map[string]string{"/run/dead.sock": "connection refused", "/run/none.sock": "no such file"} {
		out, _, err := operationtest.Perform(t, CheckRuntimeUnhealthy(h), map[string]string{"socket": socket})
		if err != nil || out.Verdict == nil || out.Verdict.Reason != "RuntimeUnreachable" || !strings.Contains(out.Verdict.Message, want) {
			t.Errorf("%+v, %v", out.Verdict, err)
		}
	}
	// A server with another protocol is no CRI runtime.
	other := serveCRI(t, "/run/crio/crio.sock", func(*grpc.Server) {})
	if _, _, err := operationtest.Perform(t, CheckRuntimeUnhealthy(other), nil); err == nil || !strings.Contains(err.Error(), "does not support CRI v1") {
		t.Error(err)
	}
	// The runtime is not blamed for the operation's own timeout.
	slow := runtimeHost(t, &fakeRuntime{delay: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	b := CheckRuntimeUnhealthy(slow)
	if _, err := b.Do(ctx, &operation.Call{Parameters: operation.Values{"timeout": "1m", "maxLatency": "1s"}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestRuntimeThatSpeaksNoGRPC(t *testing.T) {
	root := t.TempDir()
	silent(t, filepath.Join(root, "/run/containerd/containerd.sock"), "HTTP/1.1 400 Bad Request\r\n\r\n")
	out, _, err := operationtest.Perform(t, CheckRuntimeUnhealthy(operation.Host{FS: hostfs.New(root)}), map[string]string{"timeout": "500ms"})
	if err != nil || out.Verdict == nil || out.Verdict.Reason != "RuntimeUnreachable" && out.Verdict.Reason != "RuntimeSilent" {
		t.Errorf("%+v, %v", out.Verdict, err)
	}
}
