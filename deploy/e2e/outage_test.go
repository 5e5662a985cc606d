package e2e_test

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/vmtest/kubetest/node"
	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// kills counts OOM kills of one pod's children. Each must be reported once, whatever happens to
// Kernosis meanwhile.
type kills struct {
	c    *cluster
	pod  *corev1.Pod
	made int
}

func (c *cluster) kills(t *testing.T, name string) *kills {
	t.Helper()
	k := &kills{c: c, pod: c.Run(t, node.FaultPod(c.pods, name, fault.ChildKilled, false))}
	k.one(t)
	k.reported(t)
	return k
}

// one causes one more kill.
func (k *kills) one(t testing.TB) {
	t.Helper()
	k.c.setMode(t, k.pod, fault.ChildKilled)
	k.made++
}

// reported waits until every kill is reported exactly once.
func (k *kills) reported(t testing.TB) {
	t.Helper()
	k.c.reported(t, k.pod, "OOMKilling", k.made)
}

// signal sends a signal to the process of a pod's container.
func (c *cluster) signal(t testing.TB, pod *corev1.Pod, container string, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(c.process(t, pod, container), s); err != nil {
		t.Fatal(err)
	}
}

// restarted waits until a pod's container has been restarted and is ready.
func (c *cluster) restarted(t testing.TB, before *corev1.Pod) {
	t.Helper()
	was := before.Status.ContainerStatuses[0].RestartCount
	c.Await(t, before, "started again and ready", time.Minute, func(p *corev1.Pod) bool {
		return node.Ready(p) && p.Status.ContainerStatuses[0].RestartCount == was+1
	})
}

// agentKilled checks that faults while no agent runs are reported by the next one.
func (c *cluster) agentKilled(t *testing.T) {
	c.neverUnknown(t)
	k := c.kills(t, "agent-killed")
	a := &c.of(t, "agent")[0]
	c.signal(t, a, "agent", syscall.SIGKILL)
	k.one(t)
	c.restarted(t, a)
	k.one(t)
	k.reported(t)
}

// agentDeleted checks that the DaemonSet's new pod continues from the state on the node, and with
// the records of the BPF programs, which stay attached.
func (c *cluster) agentDeleted(t *testing.T) {
	c.neverUnknown(t)
	k := c.kills(t, "agent-deleted")
	old := c.of(t, "agent")[0]
	c.kubectl(t, "delete", "pod", "-n", system, old.Name)
	k.one(t)
	c.runs(t)
	k.one(t)
	k.reported(t)
	if now := c.of(t, "agent")[0]; now.UID == old.UID {
		t.Error("the agent's pod is the same")
	}
}

// kubeletRestarted simulates a reboot as far as possible: while kubelet is stopped, all processes
// of Kernosis are killed.
func (c *cluster) kubeletRestarted(t *testing.T) {
	c.neverUnknown(t)
	k := c.kills(t, "kubelet-restarted")
	agents, controllers := c.of(t, "agent"), c.of(t, "controller")
	c.RestartKubelet(t, func() {
		for _, p := range controllers {
			c.signal(t, &p, "controller", syscall.SIGKILL)
		}
		c.signal(t, &agents[0], "agent", syscall.SIGKILL)
		k.one(t)
	})
	for _, p := range append(agents, controllers...) {
		c.restarted(t, &p)
	}
	k.one(t)
	k.reported(t)
}

// serverRestarted checks that faults during an outage of the API server are reported afterwards.
func (c *cluster) serverRestarted(t *testing.T) {
	c.neverUnknown(t)
	k := c.kills(t, "server-restarted")
	a := &c.of(t, "agent")[0]
	c.Server().Stop(t)
	k.one(t)
	c.Server().Start(t)
	k.one(t)
	k.reported(t)
	if now := c.Pod(t, a); now.Status.ContainerStatuses[0].RestartCount != a.Status.ContainerStatuses[0].RestartCount {
		t.Errorf("the agent was restarted: %+v", now.Status.ContainerStatuses[0].LastTerminationState)
	}
	// A controller whose leadership has expired meanwhile exits and is restarted.
	testenv.UntilShown(t, "ready controllers", time.Minute, func() (bool, string) {
		ready := 0
		for _, p := range c.of(t, "controller") {
			if node.Ready(&p) {
				ready++
			}
		}
		return ready == 2, strconv.Itoa(ready)
	})
}
