package fleet

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

func TestKinds(t *testing.T) {
	for key, want := range map[string]kind{
		"/registry/minions/n1":                              kindNode,
		"/registry/events/default/n1.17":                    kindEvent,
		"/registry/leases/kernosis/kernosis-n1":             kindLease,
		"/registry/leases/kernosis/controller.kernosis.io":  kindServers,
		"/registry/leases/kube-system/apiserver-abc":        kindServers,
		"/registry/kernosis.io/diagnoses/kernosis/d":        kindDiagnosis,
		"/registry/kernosis.io/remediationpolicies/p":       kindPolicy,
		"/registry/kernosis.io/operationsets/s":             kindOther,
		"/registry/configmaps/kernosis/kernosis-trigger-st": kindOther,
	} {
		if got := kindOf(key); got != want {
			t.Errorf("%s is of %s, want %s", key, got, want)
		}
	}
}

func TestCounts(t *testing.T) {
	var c counts
	began := time.Unix(1000, 0)
	for _, after := range []time.Duration{0, 900 * time.Millisecond, time.Second, 1100 * time.Millisecond, 1900 * time.Millisecond, 5 * time.Second} {
		c.add(100, began.Add(after))
	}
	if c.Writes != 6 || c.Bytes != 600 || c.Peak != 3 {
		t.Errorf("%+v", c)
	}
	if got := c.rate(3 * time.Second); got != "6 (2.0/s, max 3)" {
		t.Error(got)
	}
}

// stored returns an object of core/v1 as etcd holds it.
func stored(t *testing.T, key string, o runtime.Object) kubetest.Change {
	t.Helper()
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), "application/vnd.kubernetes.protobuf")
	value, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), o)
	if err != nil {
		t.Fatal(err)
	}
	return kubetest.Change{Key: key, Value: value}
}

func storedNode(t *testing.T, change func(*corev1.Node)) kubetest.Change {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: "A", Status: "False", LastHeartbeatTime: metav1.Now()}}
	change(n)
	return stored(t, "/registry/minions/n1", n)
}

func storedEvent(t *testing.T, change func(*corev1.Event)) kubetest.Change {
	t.Helper()
	e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "n1.17", Namespace: "default"}, Reason: "OOMKilling", Count: 1, LastTimestamp: metav1.Now()}
	change(e)
	return stored(t, "/registry/events/default/n1.17", e)
}

func storedDiagnosis(t *testing.T, name string, change func(*v1alpha1.Diagnosis)) kubetest.Change {
	t.Helper()
	d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Name: name}}
	d.Spec.OperationSet, d.Spec.NodeName = setRepair, "node-of-"+name
	d.Status.Checkpoint = &v1alpha1.Checkpoint{Holder: "h", Time: metav1.NowMicro()}
	change(d)
	value, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return kubetest.Change{Key: "/registry/kernosis.io/diagnoses/kernosis/" + name, Value: value, Version: 1}
}

// A write that changes only times counts as repeated, and no other does.
func TestRepeatedWrites(t *testing.T) {
	tally, at := newTally(), time.Unix(1000, 0)
	node := func(change func(*corev1.Node)) { t.Helper(); tally.note(storedNode(t, change), at) }
	node(func(*corev1.Node) {})
	node(func(n *corev1.Node) {
		n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(at)
		n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
	})
	node(func(n *corev1.Node) { n.Status.Conditions[0].Status = "True" })
	diagnosis := func(change func(*v1alpha1.Diagnosis)) {
		t.Helper()
		tally.note(storedDiagnosis(t, "d", change), at.Add(time.Minute))
	}
	diagnosis(func(*v1alpha1.Diagnosis) {})
	diagnosis(func(d *v1alpha1.Diagnosis) { d.Status.Checkpoint.Time = metav1.NewMicroTime(at) })
	diagnosis(func(d *v1alpha1.Diagnosis) { d.Status.Checkpoint.Holder = "other" })
	if moved := tally.lastMoved(kindDiagnosis); !moved.Equal(at.Add(time.Minute)) {
		t.Errorf("moved at %s", moved)
	}
	event := func(change func(*corev1.Event)) { t.Helper(); tally.note(storedEvent(t, change), at) }
	event(func(*corev1.Event) {})
	event(func(e *corev1.Event) {
		e.LastTimestamp, e.EventTime = metav1.NewTime(at), metav1.NewMicroTime(at)
	})
	event(func(e *corev1.Event) { e.Count = 2 })
	w := tally.next()
	if w.Repeated[kindNode] != 1 || w.Repeated[kindEvent] != 1 || w.Repeated[kindDiagnosis] != 1 || w.Kinds[kindNode].Writes != 3 || w.Kinds[kindDiagnosis].Writes != 3 || len(tally.damaged) > 0 {
		t.Errorf("%+v, %q", w, tally.damaged)
	}
	if w := tally.next(); w.Kinds[kindNode].Writes != 0 {
		t.Errorf("counted again: %+v", w)
	}
	tally.note(kubetest.Change{Key: "/registry/minions/n1", Value: []byte("k8s")}, at)
	if len(tally.damaged) != 1 {
		t.Errorf("%q", tally.damaged)
	}
}

func TestBudgetAndDiagnoses(t *testing.T) {
	tally, at := newTally(), time.Unix(1000, 0)
	for _, cordoned := range []bool{false, true, true, false, true} {
		tally.note(storedNode(t, func(n *corev1.Node) { n.Spec.Unschedulable = cordoned }), at)
	}
	if most, ever, twice := tally.most(); most != 1 || ever != 1 || !slices.Equal(twice, []string{"n1 2 times"}) {
		t.Errorf("%d, %d, %q", most, ever, twice)
	}
	waits := v1alpha1.Remediation{Verb: v1alpha1.RemediationWait, Reason: v1alpha1.ReasonAwaitingApproval}
	tally.note(storedDiagnosis(t, "a", func(d *v1alpha1.Diagnosis) { d.Status.Remediations = append(d.Status.Remediations, waits) }), at)
	done := storedDiagnosis(t, "b", func(d *v1alpha1.Diagnosis) { d.Status.Phase = v1alpha1.PhaseSucceeded })
	tally.note(done, at)
	if nodes := tally.ended(); !slices.Equal(nodes, []string{"node-of-b"}) || len(tally.ended()) > 0 {
		t.Errorf("%q", nodes)
	}
	tally.note(kubetest.Change{Key: done.Key}, at)
	created, phases, reasons := tally.diagnoses()
	if created != 2 || len(phases) != 1 || reasons[v1alpha1.ReasonAwaitingApproval] != 1 {
		t.Errorf("%d, %v, %v", created, phases, reasons)
	}
}

func TestDifferences(t *testing.T) {
	got := differences(map[string]int{"a": 1, "b": 3, "c": 1, "d": 2}, map[string]int{"a": 2, "b": 2, "d": 2, "e": 1})
	slices.Sort(got)
	want := []string{"doubled: Events b tell 3, want 2", "lost: Events a tell 1, want 2", "lost: Events e tell 0, want 1", "unforeseen: Events c tell 1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestQuiet(t *testing.T) {
	f := &fleet{TB: t, nodes: 100}
	r := &row{Phase: "idle", Lasted: leaseEvery}
	r.Written.Kinds[kindLease].Writes, r.Written.Kinds[kindServers].Writes = 101, 7
	f.quiet(r)
	if len(f.wrong) > 0 {
		t.Errorf("%q", f.wrong)
	}
	r.Written.Kinds[kindLease].Writes, r.Written.Kinds[kindDiagnosis].Writes = 200, 1
	if f.quiet(r); len(f.wrong) != 2 {
		t.Errorf("%q", f.wrong)
	}
}

func TestMeter(t *testing.T) {
	m := newMeter()
	m.set(programAgents, os.Getpid())
	if u := m.next()[programAgents]; u.RSS < 1<<20 || u.CPU < 0 || u.CPU > time.Minute {
		t.Errorf("%+v", u)
	}
}

// Costs per node grow linearly, and comparisons of Diagnoses with watches quadratically.
func TestExtrapolate(t *testing.T) {
	f := &fleet{nodes: 1500, fresh: map[program]usage{programLeader: {RSS: 50 << 20}}}
	f.watch = watchCost{Watches: 1500, Bytes: 20 << 10, Alone: 2 * time.Millisecond, Among: 5 * time.Millisecond}
	idle := &row{Phase: "idle", Lasted: 10 * time.Second, Watches: 9000, Used: map[program]usage{programLeader: {RSS: 60 << 20}, programAPI: {RSS: 1 << 30, CPU: time.Second}}}
	idle.Written.Kinds[kindLease].Writes = 1000
	each := &row{Phase: "a Diagnosis of each node", Used: map[program]usage{programAPI: {CPU: 30 * time.Second}}}
	each.Written.Kinds[kindDiagnosis].Writes = 6000
	f.rows = []*row{idle, each}
	got := map[string]string{}
	for _, l := range f.extrapolate(15000) {
		got[l[0]] = l[1] + " → " + l[2]
	}
	for what, want := range map[string]string{
		"idle: writes a second":                                   "100 → 1000",
		"idle: memory of the leading controller":                  "60 MiB → 150 MiB",
		"idle: CPUs of kube-apiserver":                            "0.10 → 1.00",
		"of which comparisons with watches, CPU seconds":          "18 → 1800",
		"a Diagnosis of each node: CPU seconds of kube-apiserver": "30 → 1920",
		"a write of a Diagnosis: ms of CPU time for comparisons":  "3.00 → 30.00",
		"watches of Diagnoses by node: MiB of kube-apiserver":     "29 → 293",
	} {
		if got[what] != want {
			t.Errorf("%s: %s, want %s", what, got[what], want)
		}
	}
}

func TestWritePage(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	text := "# A\n" + beginMark + "old\n" + endMark + "more\n"
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writePage(page, "new\n"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	if err != nil || string(got) != strings.Replace(text, "old", "new", 1) {
		t.Errorf("%q, %v", got, err)
	}
	if err := writePage("count_test.go", ""); err == nil {
		t.Error("a page without marks is written")
	}
}
