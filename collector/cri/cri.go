package cri

import (
	"context"
	"io/fs"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
)

const (
	// maxHealth bounds an answer about the runtime, in bytes: a version, or some conditions.
	maxHealth = 1 << 20
	// maxExec bounds what a command may write: kubelet takes as much.
	maxExec = 16 << 20
)

// Sockets are where runtimes listen, by what is most common.
func Sockets() []string {
	return []string{
		"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/cri-dockerd.sock",
		"/run/k3s/containerd/containerd.sock", "/run/k0s/containerd.sock",
	}
}

// Find returns the first socket of the node that is there, "" where there is none.
func Find(host hostfs.FS) string {
	for _, s := range Sockets() {
		if info, err := os.Stat(host.Path(s)); err == nil && info.Mode().Type() == fs.ModeSocket {
			return s
		}
	}
	return ""
}

// connect connects to a socket, at the first call, and takes answers of so many bytes.
func connect(socket string, most int) (*grpc.ClientConn, error) {
	// The name is passed on as it is: a resolver would take signs in it for its own.
	return grpc.NewClient("passthrough:///runtime",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(most)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}))
}

// Health is what a runtime says of itself. Its texts are fit to be shown.
type Health struct {
	Name, Version, APIVersion string
	Conditions                []Condition
	Latency                   time.Duration // of the slower of two calls
}

// Condition is one of a runtime: RuntimeReady, NetworkReady, others of its own.
type Condition struct {
	Name            string
	OK              bool
	Reason, Message string
}

// Ask asks the runtime at a socket for its version and status. Errors are of gRPC.
func Ask(ctx context.Context, socket string) (h Health, err error) {
	conn, err := connect(socket, maxHealth)
	if err != nil {
		return h, err
	}
	defer conn.Close()
	client, began := cri.NewRuntimeServiceClient(conn), time.Now()
	v, err := client.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return h, err
	}
	h.Latency = time.Since(began)
	h.Name, h.Version = display.Safe(v.GetRuntimeName(), 64), display.Safe(v.GetRuntimeVersion(), 64)
	h.APIVersion = display.Safe(v.GetRuntimeApiVersion(), 64)
	began = time.Now()
	s, err := client.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return h, err
	}
	h.Latency = max(h.Latency, time.Since(began))
	const most = 16 // two are known
	for _, c := range s.GetStatus().GetConditions() {
		if len(h.Conditions) < most {
			h.Conditions = append(h.Conditions, Condition{
				Name: display.Safe(c.GetType(), 64), OK: c.GetStatus(), Reason: display.Safe(c.GetReason(), 128), Message: display.Safe(c.GetMessage(), 512),
			})
		}
	}
	return h, nil
}

// Exec is how a command in a container ended. Its output is the command's: to be trusted in
// nothing.
type Exec struct {
	Stdout, Stderr []byte
	ExitCode       int32
}

// ExecSync runs a command in a container, by its ID without the runtime's name, and waits for
// its end. The runtime ends it after the time given, in whole seconds, and says
// DeadlineExceeded then. Errors are of gRPC.
func ExecSync(ctx context.Context, socket, container string, command []string, timeout time.Duration) (Exec, error) {
	conn, err := connect(socket, maxExec)
	if err != nil {
		return Exec{}, err
	}
	defer conn.Close()
	answer, err := cri.NewRuntimeServiceClient(conn).ExecSync(ctx, &cri.ExecSyncRequest{
		ContainerId: container, Cmd: command, Timeout: int64((timeout + time.Second - 1) / time.Second),
	})
	if err != nil {
		return Exec{}, err
	}
	return Exec{Stdout: answer.GetStdout(), Stderr: answer.GetStderr(), ExitCode: answer.GetExitCode()}, nil
}
