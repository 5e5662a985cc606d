package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
	"github.com/kernosis/kernosis/vmtest/kubetest/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// startFor is how long a start may take once the programs are built; on two idle cores it takes a
// few seconds.
const startFor = 2 * time.Minute

// Node is a node of a cluster. Its methods may be called concurrently.
type Node struct {
	Name string

	server   *kubetest.Server
	dir      string // state folder, accessible to root only
	programs string // folder that contains kubelet
	plugins  string // folder of the network plugins
	space    *space
	groups   *groups
	within   *os.File // the programs' cgroup
	forwards []net.Listener
	clean    func() error

	containerd *process.Process

	mu      sync.Mutex
	kubelet *process.Process
	images  map[string]bool // imported images
	closed  bool
}

// Start starts a node of a cluster and returns when it is Ready. kubelet holds additional settings of
// KubeletConfiguration, by field name. The caller must close the node before the server.
func Start(ctx context.Context, server *kubetest.Server, kubelet map[string]any) (_ *Node, err error) {
	n := &Node{Name: "node-" + rand.String(6), server: server, images: map[string]bool{}}
	if n.plugins, err = installed(); err != nil {
		return nil, err
	}
	if n.programs, err = kubetest.Programs(ctx, os.Stderr, "node"); err != nil {
		return nil, err
	}
	within := testenv.Within(startFor)
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("node not ready after %s", within))
	defer cancel()
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if err = n.prepare(ctx); err != nil {
		return nil, err
	}
	if err = n.startContainerd(ctx); err != nil {
		return nil, err
	}
	program, err := testenv.BuiltProgram(fault.Program)
	if err != nil {
		return nil, err
	}
	if err = n.image(ctx, pauseImage, []string{program}, "pause"); err != nil {
		return nil, err
	}
	if err = n.configureKubelet(kubelet); err != nil {
		return nil, err
	}
	return n, n.startKubelet(ctx)
}

// prepare creates the environment that the programs run in.
func (n *Node) prepare(ctx context.Context) (err error) {
	// A short path: the path of a unix socket has at most 107 bytes.
	if n.dir, err = os.MkdirTemp("", "kernosis-node-"); err != nil {
		return err
	}
	if n.groups, err = findGroups(filepath.Base(n.dir)); err != nil {
		return errors.Join(err, os.RemoveAll(n.dir))
	}
	if n.clean, err = process.After(cleanUp, append([]string{n.dir}, n.groups.all...)...); err != nil {
		return errors.Join(err, os.RemoveAll(n.dir))
	}
	if err := n.groups.make(); err != nil {
		return err
	}
	if n.within, err = os.Open(n.groups.programs()); err != nil {
		return err
	}
	if n.space, err = newSpace(); err != nil {
		return err
	}
	return n.In(func() error { return errors.Join(n.mount(), n.connect(ctx)) })
}

// Close stops the node: it kills all programs and containers and removes their files. It may be
// called more than once.
func (n *Node) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	var errs []error
	for _, l := range n.forwards {
		errs = append(errs, l.Close())
	}
	if n.kubelet != nil {
		n.kubelet.Stop(syscall.SIGKILL, 0) // first, because it would restart what is killed
	}
	if n.space != nil {
		errs = append(errs, n.space.close())
	}
	if n.within != nil {
		errs = append(errs, n.within.Close())
	}
	if n.clean != nil {
		errs = append(errs, n.clean())
	}
	if n.containerd != nil {
		n.containerd.Stop(syscall.SIGKILL, 0)
	}
	return errors.Join(errs...)
}

// Server returns the API server that the node belongs to.
func (n *Node) Server() *kubetest.Server { return n.server }

// In calls fn on a thread in the node's network and mount namespaces, one call at a time. Programs
// started by fn are in these namespaces too, and may request a signal at their parent's death,
// because the thread lives until the node ends.
func (n *Node) In(fn func() error) error { return n.space.do(fn) }

// Start starts a command in the node: in its namespaces, and in a cgroup that is killed when the
// node ends.
func (n *Node) Start(cmd *exec.Cmd) error {
	n.place(cmd)
	return n.In(cmd.Start)
}

func (n *Node) place(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(n.within.Fd())
	cmd.Env = append(cmd.Environ(), "PATH="+process.Path())
}

// Command runs a program in the node and returns its output. It fails the test if the program
// fails.
func (n *Node) Command(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), name, args...)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	err := n.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		tb.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, said.String())
	}
	return said.String()
}

// run starts one of the node's own programs; its log is in the state folder.
func (n *Node) run(cmd *exec.Cmd, name string) (*process.Process, error) {
	n.place(cmd)
	return process.StartBy(func(c *exec.Cmd) error { return n.In(c.Start) }, cmd, name, n.path(name+".log"))
}

// path returns a path in the state folder.
func (n *Node) path(parts ...string) string {
	return filepath.Join(append([]string{n.dir}, parts...)...)
}
