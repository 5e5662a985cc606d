package trigger_test

import (
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/rules"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

func evidence(comm, cgroup, mount, uid string) []*event.Event {
	return []*event.Event{{
		Kind: event.OOMKill, Time: start, CPU: 1,
		Task: &event.Task{PID: 7, TGID: 7, Comm: comm, StartTime: 5}, Cgroup: &event.Cgroup{Path: cgroup},
		Container: &event.Container{ID: comm, PodUID: uid}, OOMKill: &event.OOMKillData{LimitCgroup: &event.Cgroup{Path: cgroup}},
		Device: &event.Device{Name: comm, Mounts: []event.Mount{{Path: mount, FSType: comm}}},
	}}
}

// shipped is the detector with the rules that come with it.
func shipped(tb testing.TB) *detector.Engine {
	tb.Helper()
	set, err := detector.Load(rules.FS)
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

// A task that hangs is reported again and again, becomes a deadlock after two minutes, and
// runs again: two triggers, a Diagnosis each.
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

// A container that is killed again and again, and the node as a whole.
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
			OOMKill:   &event.OOMKillData{Scope: "memcg", Limit: 32 << 20, LimitCgroup: &event.Cgroup{Path: "/kubepods/x/c0ffee"}},
		}, after(at))...)
	}
	if len(got) != 2 || got[0].Spec.OperationSet != "who-grew" || got[1].Spec.OperationSet != "node" {
		t.Fatal(names(got))
	}
	if p := got[0].Spec.Parameters; p["pid"] != "900" || p["limitCgroup"] != "/kubepods/x/c0ffee" || p["podNamespace"] != "shop" {
		t.Error(p)
	}
	// Of the node as a whole who was killed last is no parameter.
	if p := got[1].Spec.Parameters; p["pid"] != "" || p["podUID"] != "" || p["cgroup"] != "" || p["node"] != "n7" || got[1].Spec.PodReference != nil {
		t.Error(p)
	}
}
