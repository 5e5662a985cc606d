package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kernosis/kernosis/vmtest/kubetest/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// find returns the path of an installed program, or skips the test.
func find(t *testing.T, name string) string {
	t.Helper()
	path, err := process.Find(name)
	if err != nil {
		t.Skipf("%v (make node-packages)", err)
	}
	return path
}

// needRoot skips a test without root, which running containers requires.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs containers")
	}
}

// containerd is a separate container runtime: it runs in its own mount and process namespace, so it
// does not see the machine's containers, and nothing that it starts outlives it.
type containerd struct {
	dir, group string
	ctrPath    string
}

// logger copies a container's output, on its descriptors 3 and 4, into a file. It closes 5 when it is ready.
// The shim ends it by SIGTERM, and waits for it.
const logger = `#!/bin/sh
trap '' TERM
exec >"$1" 5>&-
cat <&3 &
cat <&4
wait
`

func startContainerd(t *testing.T) *containerd {
	t.Helper()
	needRoot(t)
	path, ctr := find(t, "containerd"), find(t, "ctr")
	find(t, "containerd-shim-runc-v2")
	find(t, "runc")
	// A short path: the path of a unix socket has at most 107 bytes. It is removed when all
	// processes that write to it have ended, even if the test is killed.
	dir, err := os.MkdirTemp("", "kernosis-image-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	c := &containerd{dir: dir, group: filepath.Base(dir), ctrPath: ctr}
	clean, err := process.After(`
for i in 1 2 3 4 5 6 7 8 9 10; do
  find /sys/fs/cgroup -maxdepth 2 -name "$1" -type d -exec rmdir {} + 2>/dev/null
  rm -rf -- "$0" 2>/dev/null && exit
  sleep 0.2
done`, dir, c.group)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := clean(); err != nil {
			t.Error(err)
		}
	})
	config := filepath.Join(dir, "config.toml")
	text := fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = %q
`, c.path("root"), c.path("state"), c.path("c.sock"), c.path("cni"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.path("logger"), []byte(logger), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", `mount -t proc none /proc && mount -t tmpfs none /run && exec "$0" --config "$1"`, path, config)
	cmd.Env = append(os.Environ(), "PATH="+process.Path())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	p, err := process.Start(cmd, "containerd", c.path("log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(syscall.SIGKILL, 0) })
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(30*time.Second))
	defer cancel()
	if err := process.UntilListens(ctx, c.path("c.sock"), p); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *containerd) path(name string) string { return filepath.Join(c.dir, name) }

// try runs containerd's client in kubelet's namespace.
func (c *containerd) try(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, testenv.Within(time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, c.ctrPath, append([]string{"-a", c.path("c.sock"), "-n", "k8s.io"}, args...)...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	return said.String(), err
}

func (c *containerd) ctr(t *testing.T, args ...string) string {
	t.Helper()
	said, err := c.try(t.Context(), args...)
	if err != nil {
		t.Fatalf("ctr %s: %v: %s", strings.Join(args, " "), err, said)
	}
	return said
}

// container runs the image with its own configuration, but with a read-only root filesystem. A
// command replaces its entry point.
func (c *containerd) container(ctx context.Context, id string, flags []string, command ...string) (string, error) {
	// By a logger: on a busy machine ctr may open its pipes only after the container has ended, and what
	// the shim itself copies into a file is lost if that takes longer than 2 s after this end.
	output := c.path(id + ".out")
	all := append([]string{"run", "--rm", "--read-only", "--cgroup", "/" + c.group, "--log-uri", "binary://" + c.path("logger") + "?" + output}, flags...)
	said, err := c.try(ctx, append(append(all, imageOf(), id), command...)...)
	text, readErr := os.ReadFile(output)
	return string(text) + said, errors.Join(err, readErr)
}

// imageStatus queries an image as kubelet does. containerd's CRI plugin learns of imported images a
// moment later.
func (c *containerd) imageStatus(t *testing.T, name string) *cri.Image {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+c.path("c.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var image *cri.Image
	testenv.Until(t, "containerd has the image "+name, 30*time.Second, func() bool {
		got, err := cri.NewImageServiceClient(conn).ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
		if err != nil {
			t.Fatal(err)
		}
		image = got.GetImage()
		return image != nil
	})
	return image
}

// imageOf returns the name by which kubelet asks for kernosis/kernosis.
func imageOf() string {
	ref, err := reference("kernosis/kernosis", testVersion)
	if err != nil {
		panic(err)
	}
	return ref.String()
}

func TestContainerdTakesTheImage(t *testing.T) {
	archive := filepath.Join(image(t), "kernosis-image.tar")
	c := startContainerd(t)
	c.ctr(t, "images", "import", archive)
	// The CRI plugin adds the image ID as a name.
	names := slices.DeleteFunc(strings.Fields(c.ctr(t, "images", "ls", "-q")), func(n string) bool { return strings.HasPrefix(n, "sha256:") })
	if !slices.Equal(names, []string{imageOf()}) {
		t.Fatalf("it has %q, want %s", names, imageOf())
	}
	c.ctr(t, "images", "import", "--all-platforms", archive) // a second import changes nothing
	if got := c.ctr(t, "images", "ls"); !strings.Contains(got, "linux/amd64,linux/arm64/v8") {
		t.Errorf("it is of other platforms:\n%s", got)
	}
	if got := c.ctr(t, "images", "check"); !strings.Contains(got, "complete") {
		t.Errorf("something is missing:\n%s", got)
	}

	t.Run("kubelet", func(t *testing.T) {
		// By the name that a pod uses, which differs from containerd's.
		status := c.imageStatus(t, "kernosis/kernosis:"+testTag)
		if !slices.Equal(status.GetRepoTags(), []string{imageOf()}) || status.GetUid().GetValue() != 65532 {
			t.Errorf("%+v", status)
		}
	})
	t.Run("nobody", func(t *testing.T) {
		got, err := c.container(t.Context(), "entrypoint", nil)
		if err != nil || !strings.Contains(got, "kernosis [command]") {
			t.Errorf("%v: %s", err, got)
		}
		got, err = c.container(t.Context(), "version", nil, "kernosis", "version")
		if err != nil || !strings.Contains(got, "kernosis "+testVersion+"\nrevision "+testRevision+"\n") {
			t.Errorf("%v: %s", err, got)
		}
		got, err = c.container(t.Context(), "plugin", nil, "kubectl-kernosis", "why", "--help")
		if err != nil || !strings.Contains(got, "kubectl kernosis why") {
			t.Errorf("%v: %s", err, got)
		}
		got, err = c.container(t.Context(), "check", nil, "/home/kubernetes/bin/log-counter", "--help")
		if err != nil || !strings.Contains(got, "--lookback") {
			t.Errorf("%v: %s", err, got)
		}
		// The owner of the files that the container creates shows the user it runs as.
		out := filepath.Join(t.TempDir(), "out")
		if err := os.Mkdir(out, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(out, 65532, 65532); err != nil {
			t.Fatal(err)
		}
		mount := []string{"--mount", "type=bind,src=" + out + ",dst=/out,options=rbind:rw"}
		if got, err := c.container(t.Context(), "docs", mount, "kernosis", "rules", "docs", "--dir", "/out/pages"); err != nil {
			t.Fatalf("%v: %s", err, got)
		}
		info, err := os.Stat(filepath.Join(out, "pages"))
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); st.Uid != 65532 || st.Gid != 65532 {
			t.Errorf("it runs as %d:%d", st.Uid, st.Gid)
		}
		if got, err := c.container(t.Context(), "elsewhere", nil, "kernosis", "rules", "docs", "--dir", "/pages"); err == nil || !strings.Contains(got, "read-only file system") {
			t.Errorf("its root can be written to: %v: %s", err, got)
		}
	})
}
