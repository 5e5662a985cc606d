// Package cri calls the node's container runtime over its CRI socket: for its health, and to run a
// command in a container.
//
// It is a leaf. Its users interpret the answers: operations (diagnose/operation) and probes
// (collector/probe/active and service). Each call opens a connection of its own.
package cri

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
)

const (
	// maxHealth bounds an answer about the runtime, in bytes: a version, or some conditions.
	maxHealth = 1 << 20
	// maxExec bounds the output of a command; kubelet has the same bound.
	maxExec = 16 << 20
)

// Sockets returns where runtimes listen, the most common first.
func Sockets() []string {
	return []string{
		"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/cri-dockerd.sock",
		"/run/k3s/containerd/containerd.sock", "/run/k0s/containerd.sock",
	}
}

// ErrNotFound: none of the [Sockets] exists on the node.
var ErrNotFound = errors.New("no container runtime found")

// Socket is where a runtime listens.
type Socket struct {
	Name string // path on the node
	Path string // path in this process
}

// At returns the socket at an absolute path on the node. Links (/var/run) lead below the node's root.
func At(host hostfs.FS, name string) Socket {
	path, err := host.RealPath(name)
	if err != nil {
		path = host.Path(name)
	}
	return Socket{Name: name, Path: path}
}

// Find calls try with each of the [Sockets] that exists, until try returns anything but Unimplemented:
// Docker's containerd listens too, but serves no CRI. Sockets whose process has ended come last,
// because another runtime may have replaced it. Find returns the last error of try.
func Find(ctx context.Context, host hostfs.FS, try func(Socket) error) error {
	var live, dead []Socket
	for _, name := range Sockets() {
		s := At(host, name)
		if info, err := os.Stat(s.Path); err != nil || info.Mode().Type() != fs.ModeSocket {
			continue
		}
		if s.refuses(ctx) {
			dead = append(dead, s)
		} else {
			live = append(live, s)
		}
	}
	err := ErrNotFound
	for _, s := range append(live, dead...) {
		if err = try(s); status.Code(err) != codes.Unimplemented {
			break
		}
	}
	return err
}

// refuses reports whether no process listens at it any more.
func (s Socket) refuses(ctx context.Context) bool {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", s.Path)
	if err == nil {
		_ = c.Close() // nothing was sent
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

// connect returns a client that connects at the first call, and refuses answers longer than most bytes.
func connect(socket string, most int) (*grpc.ClientConn, error) {
	// passthrough: a resolver would interpret special characters in the name.
	return grpc.NewClient("passthrough:///runtime",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(most)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}))
}

// Health is the state of a runtime as reported by itself. Its texts are safe to display.
type Health struct {
	Name, Version, APIVersion string
	Conditions                []Condition
	Latency                   time.Duration // of the slower of two calls
}

// Condition is a condition of a runtime: RuntimeReady, NetworkReady, or one of its own.
type Condition struct {
	Name            string
	OK              bool
	Reason, Message string
}

// Ask gets the version and status of the runtime at a socket. Errors are gRPC errors.
func Ask(ctx context.Context, socket Socket) (h Health, err error) {
	conn, err := connect(socket.Path, maxHealth)
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
	conditions := s.GetStatus().GetConditions()
	for _, c := range conditions[:min(len(conditions), 16)] { // two are known
		h.Conditions = append(h.Conditions, Condition{
			Name: display.Safe(c.GetType(), 64), OK: c.GetStatus(), Reason: display.Safe(c.GetReason(), 128), Message: display.Safe(c.GetMessage(), 512),
		})
	}
	return h, nil
}

// Exec is the result of a command in a container. Its output is untrusted.
type Exec struct {
	Stdout, Stderr []byte
	ExitCode       int32
}

// ExecSync runs a command in a container, given by its ID without the runtime's name, and waits
// for its end. The runtime kills it after the timeout, rounded up to whole seconds, and returns
// DeadlineExceeded then. Errors are gRPC errors.
func ExecSync(ctx context.Context, socket Socket, container string, command []string, timeout time.Duration) (Exec, error) {
	conn, err := connect(socket.Path, maxExec)
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
