package active

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
	"github.com/kernosis/kernosis/vmtest/testserver"
)

// runtime is a container runtime that answers ExecSync as containerd does.
type runtime struct {
	criapi.UnimplementedRuntimeServiceServer
}

func (runtime) ExecSync(ctx context.Context, r *criapi.ExecSyncRequest) (*criapi.ExecSyncResponse, error) {
	if r.GetContainerId() != "8a1f" {
		return nil, status.Error(codes.NotFound, "container not found")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.GetTimeout())*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.GetCmd()[0], r.GetCmd()[1:]...)
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, status.Errorf(codes.DeadlineExceeded, "failed to exec in container: timeout %ds exceeded", r.GetTimeout())
	}
	if end, ok := errors.AsType[*exec.ExitError](err); ok {
		return &criapi.ExecSyncResponse{Stdout: out, Stderr: end.Stderr, ExitCode: int32(end.ExitCode())}, nil
	}
	if err != nil {
		return nil, status.Error(codes.Unknown, err.Error())
	}
	return &criapi.ExecSyncResponse{Stdout: out}, nil
}

// runtimeNode is a node with a container runtime beside Docker, whose containerd has no CRI. Both
// sockets are below an absolute link.
func runtimeNode(t *testing.T) hostfs.FS {
	t.Helper()
	root, err := os.MkdirTemp("", "cri") //nolint:usetesting // t.TempDir's may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := os.Symlink("/sockets", filepath.Join(root, "run")); err != nil {
		t.Fatal(err)
	}
	for socket, register := range map[string]func(*grpc.Server){
		"containerd/containerd.sock": func(*grpc.Server) {},
		"cri-dockerd.sock":           func(s *grpc.Server) { criapi.RegisterRuntimeServiceServer(s, runtime{}) },
	} {
		at := filepath.Join(root, "sockets", socket)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", at)
		if err != nil {
			t.Fatal(err)
		}
		testserver.GRPC(t, l, register)
	}
	return hostfs.New(root)
}

func TestCommand(t *testing.T) {
	p := New(runtimeNode(t))
	run := func(timeout time.Duration, command ...string) (probe.Outcome, error) {
		return p.Probe(t.Context(), &probe.Request{
			Pod: &probe.Pod{}, Container: &probe.Container{ID: "containerd://8a1f"},
			Spec: &probe.Spec{Handler: probe.Exec, Command: command, Timeout: timeout},
		})
	}
	o, err := run(plenty, "echo", "well")
	if err != nil || !o.OK || o.Detail.Said != "well" || o.Detail.Verdict != "" {
		t.Errorf("%+v, %v", o, err)
	}
	o, err = run(plenty, "sh", "-c", "echo no database >&2; exit 3")
	if d := o.Detail; err != nil || o.OK || d.Verdict != event.VerdictExecFailed || d.Status != "exit 3" || d.Said != "no database" ||
		!strings.HasPrefix(d.Cause, "sh -c echo no database >&2; exit 3 ended with exit code 3 after ") || !strings.HasSuffix(d.Cause, ": no database") {
		t.Errorf("%+v, %v", o, err)
	}
	o, err = run(time.Second, "sleep", "30")
	if d := o.Detail; err != nil || o.OK || d.Verdict != event.VerdictExecSlow || d.Cause != "sleep 30 did not end within 1s" || d.Duration < event.Duration(time.Second) {
		t.Errorf("%+v, %v", o, err)
	}
	// A command that can't be run says nothing about the container.
	if o, err = run(plenty, "/no/such/program"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%+v, %v", o, err)
	}
	for id, want := range map[string]string{"containerd://other": "container not found", "": "want RUNTIME://ID", "8a1f": "want RUNTIME://ID"} {
		if o, err := p.Command(t.Context(), id, []string{"true"}, plenty); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", id, o, err)
		}
	}
	if o, err := New(hostfs.New(t.TempDir())).Command(t.Context(), "containerd://8a1f", []string{"true"}, plenty); err == nil || !strings.Contains(err.Error(), "no container runtime") {
		t.Errorf("%+v, %v", o, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Command(ctx, "containerd://8a1f", []string{"true"}, plenty); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestProgram(t *testing.T) {
	p := New(hostfs.New("/"))
	limit := testenv.Within(2 * time.Second) // the shell has to start within it
	for name, c := range map[string]struct {
		script                string
		timeout               time.Duration
		verdict, cause, state string
	}{
		"well":     {"echo fine", plenty, "", "", ""},
		"failed":   {`printf 'disk \033[1m is full\nmore'; exit 2`, plenty, event.VerdictExecFailed, `: disk \x1b[1m is full`, "exit 2"},
		"killed":   {"kill -9 $$", plenty, event.VerdictExecFailed, "it was ended by SIGKILL", ""},
		"too late": {"echo begun; sleep 30", limit, event.VerdictExecSlow, "did not end within " + display.Duration(limit) + ": begun", ""},
	} {
		o, err := p.Program(t.Context(), &process.Runs{}, process.Program{Path: "/bin/sh", Args: []string{"-c", c.script}, Timeout: c.timeout})
		d := o.Detail
		if err != nil || o.OK != (c.verdict == "") || d.Verdict != c.verdict || !strings.Contains(d.Cause, c.cause) || d.Status != c.state || d.Feed != event.ProbeActive || d.Duration <= 0 {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
		if c.cause != "" && (!strings.HasPrefix(d.Cause, "sh -c ") || len(d.Cause) > maxCause) {
			t.Errorf("%s: %s", name, d.Cause)
		}
	}
	if o, err := p.Program(t.Context(), &process.Runs{}, process.Program{Path: "/no/such/program", Timeout: plenty}); err == nil {
		t.Errorf("%+v", o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Program(ctx, &process.Runs{}, process.Program{Path: "/bin/true", Timeout: plenty}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
