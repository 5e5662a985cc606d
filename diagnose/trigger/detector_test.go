package trigger_test

import (
	"io/fs"
	"slices"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/diagnose/operation/disk"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/vmtest/operationtest"
)

func evidence(comm, cgroup, mount, uid string) []*event.Event {
	return []*event.Event{{
		Kind: event.OOMKill, Time: start, CPU: 1,
		Task: &event.Task{PID: 7, TGID: 7, Comm: comm, StartTime: 5}, Cgroup: &event.Cgroup{Path: cgroup},
		Container: &event.Container{ID: comm, PodUID: uid}, OOMKill: &event.OOMKillData{LimitCgroup: &event.Cgroup{Path: cgroup}},
		Device: &event.Device{Name: comm, Mounts: []event.Mount{{Path: mount, FSType: comm}}},
	}}
}

// shipped returns the detector with the shipped rules.
func shipped(tb testing.TB) *detector.Engine {
	tb.Helper()
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		tb.Fatal(err)
	}
	return detector.NewEngine(set)
}

func feed(e *trigger.Engine, d *detector.Engine, ev *event.Event, now time.Time) []*v1alpha1.Diagnosis {
	var wanted []*v1alpha1.Diagnosis
	for _, tr := range d.Observe(ev, event.Moment{Wall: now, Boot: now.Sub(start)}) {
		if tr.Problem == nil {
			continue
		}
		var pod *trigger.Pod
		if tr.Problem.Pod == db.UID {
			pod = db
		}
		wanted = append(wanted, e.Problem(tr.Problem, pod, now)...)
	}
	return wanted
}

// A task that hangs is reported repeatedly, becomes a deadlock after two minutes, and then runs
// again: two triggers, one Diagnosis each.
func TestTaskThatHangs(t *testing.T) {
	d := shipped(t)
	e := engineWith(t,
		`{operationSet: stacks, sourceTemplate: {problemTemplate: {rules: [task-hung]}}}`,
		`{operationSet: deadlock, sourceTemplate: {problemTemplate: {conditions: [KernelDeadlock], minSeverity: critical}}}`)
	hang := func(at time.Duration) *event.Event {
		return &event.Event{
			Kind: event.HungTask, Time: after(at), BootTime: event.Duration(time.Hour + at), CPU: event.NoCPU,
			Task:      &event.Task{PID: 812, TGID: 811, Comm: "pg", StartTime: event.Duration(73120 * time.Millisecond)},
			Container: &event.Container{ID: "c0ffee", PodUID: db.UID}, Cgroup: &event.Cgroup{Path: "/kubepods/x/c0ffee"},
			HungTask: &event.HungTaskData{BlockedFor: event.Duration(30*time.Second + at), Wait: "lock", Lock: "mutex", Holder: &event.Task{PID: 4, Comm: "h"}},
		}
	}
	var got []*v1alpha1.Diagnosis
	for i := range 60 { // ten minutes
		at := time.Duration(i) * 10 * time.Second
		got = append(got, feed(e, d, hang(at), after(at))...)
	}
	resumed := hang(11 * time.Minute)
	resumed.Kind = event.HungTaskResumed
	got = append(got, feed(e, d, resumed, after(11*time.Minute))...)
	got = append(got, feed(e, d, nil, after(time.Hour))...)
	if len(got) != 2 || got[0].Spec.OperationSet != "stacks" || got[1].Spec.OperationSet != "deadlock" {
		t.Fatal(names(got))
	}
	for _, dx := range got {
		acceptable(t, dx)
		p := dx.Spec.Parameters
		if p["pid"] != "812" || p["startTime"] != "73.12s" || p["holderPID"] != "4" || p["podName"] != "db-0" || p["containerID"] != "c0ffee" || dx.Spec.PodReference.Name != "db-0" {
			t.Errorf("%+v", dx.Spec)
		}
	}
}

// A container that is killed repeatedly at the limit of all pods, and the node as a whole.
func TestOOMKills(t *testing.T) {
	d := shipped(t)
	e := engineWith(t,
		`{operationSet: who-grew, sourceTemplate: {problemTemplate: {rules: [oom-kill], namespaces: [shop]}}}`,
		`{operationSet: node, sourceTemplate: {problemTemplate: {rules: [oom-kill-frequent-node]}}}`)
	var got []*v1alpha1.Diagnosis
	for i := range 12 {
		at := time.Duration(i) * 20 * time.Second
		got = append(got, feed(e, d, &event.Event{
			Kind: event.OOMKill, Time: after(at), BootTime: event.Duration(time.Hour + at), CPU: 1,
			Task: &event.Task{PID: uint32(900 + i), TGID: uint32(900 + i), Comm: "pg"}, Cgroup: &event.Cgroup{Path: "/kubepods/x/c0ffee"},
			Container: &event.Container{ID: "c0ffee", PodUID: db.UID},
			OOMKill:   &event.OOMKillData{Scope: "memcg", Limit: 32 << 20, LimitCgroup: &event.Cgroup{Path: "/kubepods"}},
		}, after(at))...)
	}
	if len(got) != 2 || got[0].Spec.OperationSet != "who-grew" || got[1].Spec.OperationSet != "node" {
		t.Fatal(names(got))
	}
	if p := got[0].Spec.Parameters; p["pid"] != "900" || p["limitCgroup"] != "/kubepods" || p["podNamespace"] != "shop" {
		t.Error(p)
	}
	// For the node as a whole, the last victim is no parameter.
	if p := got[1].Spec.Parameters; p["pid"] != "" || p["podUID"] != "" || p["cgroup"] != "" || p["node"] != "n7" || got[1].Spec.PodReference != nil {
		t.Error(p)
	}
}

// The first operation of the Diagnosis accepts any disk name in the kernel's lines, including an
// NVMe controller and a partition that is gone.
func TestDisksOfKernelLines(t *testing.T) {
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	e := engineOf(t, shippedTriggers(t, "disk-error")...)
	op := disk.DiskErrors(operationtest.HostOf(t, map[string]string{
		"/sys/class/nvme/nvme0/nvme0n1/size": "8", "/sys/class/block/nvme0n1/dev": "259:0", "/sys/block/nvme0n1/size": "8",
	}))
	looked := map[string][]string{} // by rule: the disks
	for _, line := range kernelLinesOf(t, "klog-disk_test.yaml") {
		ev := &event.Event{
			Kind: event.Log, Time: start, BootTime: event.Duration(time.Hour), CPU: event.NoCPU,
			Log: &event.LogData{Log: "kmsg", Origin: event.OriginKernel, Text: line},
		}
		for _, dx := range feed(e, detector.NewEngine(set), ev, start) {
			parameters := map[string]string{}
			for _, p := range op.Parameters {
				if v := dx.Spec.Parameters[p.Name]; v != "" {
					parameters[p.Name] = v
				}
			}
			out, _, err := operationtest.Perform(t, op, parameters)
			if err != nil {
				t.Errorf("%s: %v", line, err)
			}
			rule := dx.Spec.Parameters["rule"]
			looked[rule] = append(looked[rule], out.Results["disk"])
		}
	}
	for rule, want := range map[string]string{
		"nvme-timeout": "nvme0n1", "nvme-reset": "nvme0n1", "nvme-lost": "nvme0n1", "buffer-io-error": "sda1", "ata-error": "nvme0n1", "disk-offline": "nvme0n1",
	} {
		if !slices.Contains(looked[rule], want) {
			t.Errorf("%s: looked at %v, want %s", rule, looked[rule], want)
		}
	}
}

// shippedTriggers returns the Triggers of a shipped set, without their cooldown.
func shippedTriggers(tb testing.TB, name string) (all []*trigger.Matcher) {
	tb.Helper()
	set, err := manifest.Shipped(name)
	if err != nil {
		tb.Fatal(err)
	}
	for _, tr := range set.Triggers {
		tr.Spec.Cooldown = &metav1.Duration{}
		all = append(all, compile(tb, tr))
	}
	return all
}

// kernelLinesOf returns the lines of a shipped rule test that only the kernel writes.
func kernelLinesOf(tb testing.TB, file string) (lines []string) {
	tb.Helper()
	data, err := fs.ReadFile(detector.Shipped(), file)
	if err != nil {
		tb.Fatal(err)
	}
	var tests struct {
		Tests []struct {
			Events []struct {
				Like  string
				Event struct{ Log struct{ Text string } }
			}
		}
	}
	if err := yaml.Unmarshal(data, &tests); err != nil {
		tb.Fatal(err)
	}
	for _, test := range tests.Tests {
		for _, e := range test.Events {
			if e.Like == "line" {
				lines = append(lines, e.Event.Log.Text)
			}
		}
	}
	return lines
}
