// Package hardened_test runs the agent in a virtual machine in a real runc container of the chart's
// hardened profile, together with faults of other pods. On a kernel with cgroup v2 such a container
// has its own cgroup namespace.
package hardened_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv(asContainer) != "" {
		fmt.Fprintln(os.Stderr, runContainer(os.Args[1:])) // returns only on failure
		os.Exit(70)
	}
	if inject.RunChild(os.Args) {
		return
	}
	os.Exit(m.Run())
}

// The seccomp profile matches the one that the runtime generates for these capabilities.
func TestSeccompIsForTheChartsCapabilities(t *testing.T) {
	pod, err := hardenedPod()
	if err != nil {
		t.Fatal(err)
	}
	seccomp, err := readSeccomp()
	if err != nil {
		t.Fatal(err)
	}
	if want := pod.Containers[0].SecurityContext.Capabilities.Add; !slices.Equal(seccomp.Capabilities, want) {
		t.Errorf("testdata/seccomp.json is for %q, and the chart has %q", seccomp.Capabilities, want)
	}
}

// inMachine skips a test unless it runs in a machine of vmrun: on a host it would break things.
func inMachine(t *testing.T) {
	t.Helper()
	comm, err := os.ReadFile("/proc/1/comm")
	if err != nil {
		t.Fatal(err)
	}
	if first := strings.TrimSpace(string(comm)); first != "vmrun" {
		t.Skipf("runs in a machine of vmrun's; the first process of this one is %s", first)
	}
}

func TestHardened(t *testing.T) {
	inMachine(t)
	// Like systemd, so that later mounts propagate to containers.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	t.Run("rights", rights)
	n := &node{agent: start(t)}
	n.prober, n.target = netlab.Pair(t)
	t.Run("conditions", n.conditions)
	t.Run("refused", n.refused)
	t.Run("accept-queue-full", n.queueFull)
	t.Run("cgroup-policy", n.policy)
	t.Run("oom-kill", n.oomKill)
	t.Run("hung-task", n.hungTask)
	t.Run("disk-error", n.diskError)
	t.Run("filesystem-read-only", n.readOnly)
	n.agent.Stop()
	for _, ev := range agenttest.Events(n.agent.Entries(), event.Lost) {
		t.Errorf("lost: %+v", *ev.Lost)
	}
}

// start starts the agent with those of the chart's arguments that concern its node, and with a
// target, so that the connection programs stay attached.
func start(t *testing.T) *agenttest.Agent {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	a := agenttest.New(t, self, append(nodeArgs(t), "--target", idleTarget, "--hung-task-after", "2s")...)
	a.Env = []string{asContainer + "=1"}
	// In the chart these paths are the same on the node and in the container.
	a.State, a.Targets, a.Pins = "/var/lib/kernosis", "/run/kernosis/targets.d", bpf.DefaultPinRoot
	if err := os.MkdirAll(a.Targets, 0o755); err != nil {
		t.Fatal(err)
	}
	a.Start()
	a.WaitSources(0)
	watched(t, a, 0, netip.MustParseAddrPort(idleTarget))
	return a
}

// idleTarget has no route and no prober.
const idleTarget = "192.0.2.1:9"

// nodeArgs returns those of the container's arguments that "kernosis run" accepts too.
func nodeArgs(t *testing.T) (args []string) {
	t.Helper()
	pod, err := hardenedPod()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range pod.Containers[0].Args {
		if name, _, _ := strings.Cut(a, "="); name == "--host-root" || name == "--report-socket" {
			args = append(args, a)
		}
	}
	if len(args) != 2 {
		t.Fatalf("of the chart's arguments: %q", args)
	}
	return args
}

// watched waits until the agent watches a target.
func watched(t *testing.T, a *agenttest.Agent, netns uint32, at netip.AddrPort) {
	t.Helper()
	testenv.UntilShown(t, "watched target "+at.String(), time.Minute, func() (bool, string) {
		ok, err := bpf.WatchedBy(a.Pins, netns, at)
		return ok, fmt.Sprint(err)
	})
}

// features is the output of "kernosis features".
type features struct {
	Programs []bpf.VariantReport
	Lacks    []struct{ Part, Reason, Lacks string }
}

func featuresOf(t *testing.T, cmd *exec.Cmd) (f features) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &f)
	}
	if err != nil {
		t.Fatalf("%v: %v: %s", cmd.Args, err, stderr.String())
	}
	return f
}

// rights checks that the container lacks exactly what docs/capabilities.md and docs/install.md
// list, and that each program that attaches on the machine also attaches in the container.
func rights(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	contained := exec.CommandContext(t.Context(), self, "features", "-o", "json", "--host-root", "/host")
	contained.Env = append(os.Environ(), asContainer+"=1")
	in := featuresOf(t, contained)
	outside := featuresOf(t, exec.CommandContext(t.Context(), "../../bin/kernosis", "features", "-o", "json"))
	var lacks []string
	for _, l := range in.Lacks {
		lacks = append(lacks, l.Part+": "+l.Reason+": "+l.Lacks)
	}
	want := []string{
		"namespaces: MissingRights: CAP_SYS_ADMIN", "log/kmsg: MissingRights: " + kmsgRight,
		"stacks: MissingRights: CAP_SYS_ADMIN", "captures: MissingRights: CAP_NET_RAW",
	}
	if !slices.Equal(lacks, want) {
		t.Errorf("lacks %q, want %q", lacks, want)
	}
	if len(in.Programs) == 0 || len(in.Programs) != len(outside.Programs) {
		t.Fatalf("%d programs, outside %d", len(in.Programs), len(outside.Programs))
	}
	for i, p := range in.Programs {
		if o := outside.Programs[i]; p.Program != o.Program || o.State == bpf.Attached && p.State != bpf.Attached {
			t.Errorf("%s/%s: %s is %s (%s), outside %s is %s", p.Stem, p.Hook, p.Program, p.State, p.Reason, o.Program, o.State)
		}
	}
}

// kmsgRight is what the reader of the kernel log lacks: the container has the device but may not
// open it.
const kmsgRight = "the right to read /dev/kmsg"

// node is a machine with the agent and the networks of two pods.
type node struct {
	agent          *agenttest.Agent
	prober, target *netlab.Net
}

func (n *node) conditions(t *testing.T) {
	entries := n.agent.WaitIn(t, "conditions", time.Minute, func(entries []journal.Entry) bool {
		return agenttest.Condition(entries, "KernosisDegraded").Status == problem.True &&
			agenttest.Condition(entries, "KernelDeadlock").Status == problem.Unknown && // the kernel log is one of its sources
			agenttest.Condition(entries, "FrequentOOMKilling").Status == problem.False
	})
	c := agenttest.Condition(entries, "KernosisDegraded")
	for _, want := range []string{"without CAP_SYS_ADMIN: full accept queues", "the kernel's log", "without CAP_NET_RAW: packets"} {
		if c.Reason != "MissingRights" || !strings.Contains(c.Message, want) {
			t.Errorf("%s: %q has not %q", c.Reason, c.Message, want)
		}
	}
}

// fires waits for an event of a kind for which of returns true, and until a rule fires for its
// subject.
func (n *node) fires(t *testing.T, kind event.Kind, rule string, of func(*event.Event) bool) *event.Event {
	t.Helper()
	var found *event.Event
	testenv.UntilShown(t, string(kind)+" and "+rule, 20*time.Second, func() (bool, string) {
		entries := n.agent.Entries()
		all := agenttest.Events(entries, kind)
		i := slices.IndexFunc(all, of)
		if i < 0 {
			return false, fmt.Sprintf("%d others", len(all))
		}
		found = all[i]
		states := agenttest.States(entries, rule, func(p *problem.Problem) bool { return p.Subject == found.Subject() })
		text, err := json.Marshal(found)
		return slices.Contains(states, problem.Firing), fmt.Sprintf("states %v, %s, %v", states, text, err)
	})
	return found
}

// over waits for an event of a kind for which of returns true.
func (n *node) over(t *testing.T, kind event.Kind, of func(*event.Event) bool) {
	t.Helper()
	n.agent.WaitIn(t, string(kind), time.Minute, func(entries []journal.Entry) bool {
		return slices.ContainsFunc(agenttest.Events(entries, kind), of)
	})
}

// probe makes a probe of a target fail and returns the event.
func (n *node) probe(t *testing.T, name string, port uint16, rule string) *event.Event {
	t.Helper()
	at := netip.AddrPortFrom(netip.MustParseAddr("10.97.31.2"), port)
	text := fmt.Sprintf("targets:\n- {name: %s, address: %q, port: %d, netns: %d, targetNetns: %d}\n",
		name, at.Addr(), port, n.prober.Inode, n.target.Inode)
	if err := os.WriteFile(filepath.Join(n.agent.Targets, name+".yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	watched(t, n.agent, n.prober.Inode, at)
	if err := n.prober.Probe(at.String(), time.Second, ""); err == nil {
		t.Fatal("the probe did not fail")
	}
	return n.fires(t, event.SockFail, rule, of(name))
}

func of(target string) func(*event.Event) bool {
	return func(ev *event.Event) bool { return ev.SockFail.Target == target }
}

// recovers makes a probe succeed.
func (n *node) recovers(t *testing.T, name string, port uint16) {
	t.Helper()
	if err := n.prober.Probe(fmt.Sprintf("10.97.31.2:%d", port), testenv.Within(10*time.Second), "ping"); err != nil {
		t.Fatal(err)
	}
	n.over(t, event.SockFailRecovered, of(name))
}

func (n *node) refused(t *testing.T) {
	ev := n.probe(t, "refused", 81, "probe-target-refused")
	if d := ev.SockFail; d.Verdict != event.VerdictRefused || d.Errno != "ECONNREFUSED" || ev.Task == nil || ev.Task.TGID != uint32(os.Getpid()) {
		t.Errorf("%s: %+v", ev.Task, d)
	}
	n.target.Serve("10.97.31.2:81", netlab.Echo)
	n.recovers(t, "refused", 81)
}

// queueFull checks the verdict without CAP_SYS_ADMIN, which inspecting the listener requires.
func (n *node) queueFull(t *testing.T) {
	l := n.target.Listen("10.97.31.2:82", 0)
	queued := n.prober.Dial("10.97.31.2:82")
	ev := n.probe(t, "queue", 82, "probe-target-timeout")
	if d := ev.SockFail; d.Verdict != event.VerdictTimeout || d.QueueMax != 0 {
		t.Errorf("%+v", d)
	}
	n.target.Accept(l, netlab.Echo)
	if err := errors.Join(
		queued.SetDeadline(time.Now().Add(testenv.Within(10*time.Second))),
		second(queued.Write([]byte("ping"))), second(queued.Read(make([]byte, 1))),
	); err != nil {
		t.Fatal(err)
	}
	n.recovers(t, "queue", 82)
}

func second(_ int, err error) error { return err }

// policy checks a connection rejected by a cgroup program. Only programs on the root of the cgroup
// hierarchy detect that; the agent's programs are on its own group, which it sees as its root.
// Without CAP_SYS_ADMIN the agent can't inspect the routes of a pod either, which would rule out a
// missing route.
func (n *node) policy(t *testing.T) {
	n.target.Serve("10.97.31.2:83", netlab.Echo)
	undo := netlab.Forbid(t, "/sys/fs/cgroup", netip.MustParseAddr("10.97.31.2"))
	ev := n.probe(t, "policy", 83, "probe-target-no-route")
	if d := ev.SockFail; d.Verdict != event.VerdictNoRoute || len(d.Evidence) != 2 || !strings.HasPrefix(d.Evidence[1], "the route could not be looked up") {
		t.Errorf("%+v", d)
	}
	undo()
	n.recovers(t, "policy", 83)
}

// podUID is the UID of the pods with faults.
const podUID = "0b0d1c2e-3f4a-4b5c-8d6e-7f8091a2b3c4"

// inPod fails the test unless the event is attributed to the pod's container with the cgroup in
// this folder.
func inPod(t *testing.T, ev *event.Event, group string) {
	t.Helper()
	path := strings.TrimPrefix(group, "/sys/fs/cgroup")
	if ev.Cgroup == nil || ev.Cgroup.Path != path || ev.Container == nil || ev.Container.PodUID != podUID || ev.Container.ID != filepath.Base(path) {
		t.Errorf("of %+v, %+v; want %s", ev.Cgroup, ev.Container, path)
	}
}

func (n *node) oomKill(t *testing.T) {
	const limit = 16 << 20
	group := agenttest.PodGroup(t, podUID, limit)
	agenttest.KillIn(t, group)
	ev := n.fires(t, event.OOMKill, "oom-kill", func(*event.Event) bool { return true })
	inPod(t, ev, group)
	if d := ev.OOMKill; ev.Task.Comm != "dd" || d.Scope != "memcg" || d.Limit != limit || d.LimitCgroup == nil || d.LimitCgroup.Path != ev.Cgroup.Path {
		t.Errorf("%s: %+v", ev.Task, d)
	}
}

func (n *node) hungTask(t *testing.T) {
	group := agenttest.PodGroup(t, podUID, 256<<20)
	f := &inject.FSFreeze{StateDir: t.TempDir(), Cgroup: group}
	hang, err := f.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	is := func(ev *event.Event) bool { return ev.Task.PID == uint32(hang.Waiter.TID) }
	ev := n.fires(t, event.HungTask, "task-hung", is)
	inPod(t, ev, group)
	// Resolving function names requires CAP_SYSLOG.
	if d := ev.HungTask; ev.Task.Comm != hang.Waiter.Comm || d.Wait != "lock" || !strings.Contains(strings.Join(d.Stack, "\n"), "ksys_write+") {
		t.Errorf("%s: %+v", ev.Task, d)
	}
	if err := f.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.over(t, event.HungTaskResumed, is)
}

func (n *node) diskError(t *testing.T) {
	d := &inject.DiskError{Kind: inject.DiskWrite, StateDir: t.TempDir()}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	name, dir := d.Device()
	var found *event.Event
	// The agent learns of mounts about 200 ms later.
	testenv.UntilShown(t, "an error of "+name+" with its mount point", time.Minute, func() (bool, string) {
		sector, _, err := d.Fail()
		if err != nil {
			t.Fatal(err)
		}
		found = n.fires(t, event.DiskIO, "disk-io-error", func(ev *event.Event) bool { return ev.Device.Name == name && ev.DiskIO.Sector == sector })
		return len(found.Device.Mounts) > 0, fmt.Sprintf("%+v", found.Device)
	})
	if m := found.Device.Mounts; !slices.Equal(m, []event.Mount{{Path: dir, FSType: "ext4"}}) || found.DiskIO.Op != "write" || found.DiskIO.Error != "EIO" {
		t.Errorf("%+v: %+v", m, found.DiskIO)
	}
}

func (n *node) readOnly(t *testing.T) {
	f := &inject.ReadonlyFS{StateDir: t.TempDir()}
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	device, dir := f.Mount()
	is := func(ev *event.Event) bool { return ev.Device.Name == filepath.Base(device) }
	n.fires(t, event.FSError, "filesystem-error", is)
	ev := n.fires(t, event.MountReadOnly, "readonly-filesystem", is)
	if ev.Mount.Path != dir {
		t.Errorf("%+v, want %s", ev.Mount, dir)
	}
	if _, err := f.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.over(t, event.MountWritable, is)
}
