package node

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/kernosis/kernosis/vmtest/kubetest/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// pauseImage is the image of the container that holds a pod's namespaces open.
const pauseImage = "local.test/pause:1"

// startContainerd starts the container runtime and returns when it responds.
func (n *Node) startContainerd(ctx context.Context) (err error) {
	path, err := process.Find("containerd")
	if err != nil {
		return err
	}
	network := fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "test", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`, podNetwork)
	// Without CAP_SYS_RESOURCE root may not protect a process from the OOM killer, and no container
	// would start. That is why restrict_oom_score_adj is set. The disabled plugins require features
	// that a node may lack.
	config := fmt.Sprintf(`version = 2
root = %q
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`, n.path("containerd"), n.socket(), pauseImage, n.plugins, n.path("cni"))
	if err := os.Mkdir(n.path("cni"), 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{"containerd.toml": config, "cni/10-test.conflist": network} {
		if err := os.WriteFile(n.path(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	//nolint:noctx // it outlives the call
	if n.containerd, err = n.run(exec.Command(path, "--config", n.path("containerd.toml")), "containerd"); err != nil {
		return err
	}
	return process.UntilListens(ctx, n.socket(), n.containerd)
}

// socket returns the path of containerd's socket.
func (n *Node) socket() string { return n.path("containerd.sock") }

// ctr runs containerd's own client.
func (n *Node) ctr(ctx context.Context, args ...string) error {
	path, err := process.Find("ctr")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, testenv.Within(time.Minute))
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, path, append([]string{"-a", n.socket(), "-n", "k8s.io"}, args...)...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := n.Start(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("ctr %s: %w: %s", args[0], err, said.Bytes())
	}
	return nil
}
