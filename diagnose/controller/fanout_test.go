package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// children returns the Diagnoses of a targetSelector, sorted by name.
func (b *bench) children(d *v1alpha1.Diagnosis) []v1alpha1.Diagnosis {
	b.t.Helper()
	var list v1alpha1.DiagnosisList
	if err := b.client.List(context.Background(), &list, client.InNamespace(d.Namespace), client.MatchingLabels{v1alpha1.LabelParent: string(b.get(d).UID)}); err != nil {
		b.t.Fatal(err)
	}
	return list.Items
}

// nodes creates Nodes with a label.
func (b *bench) nodes(label string, n int) (names []string) {
	b.t.Helper()
	var mu sync.Mutex
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for {
				mu.Lock()
				i := len(names)
				if i == n {
					mu.Unlock()
					return
				}
				name := fmt.Sprintf("%s-%03d", label, i)
				names = append(names, name)
				mu.Unlock()
				if err := b.client.Create(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": label}}}); err != nil {
					b.t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	return names
}

func selectNodes(label string, most int32) *v1alpha1.TargetSelector {
	return &v1alpha1.TargetSelector{NodeSelector: &v1alpha1.LabelSelector{MatchLabels: map[string]string{"pool": label}}, MaxTargets: most}
}

func targets(d *v1alpha1.Diagnosis) v1alpha1.Targets {
	if d.Status.Targets == nil {
		return v1alpha1.Targets{}
	}
	return *d.Status.Targets
}

func TestTargetsThatAreNodes(t *testing.T) {
	b := newBench(t)
	b.control(nil)
	label := b.name("pool")
	names := b.nodes(label, 4)
	for _, n := range names {
		b.agent(n)
	}
	d := b.dx(v1alpha1.DiagnosisSpec{OperationSet: b.set(), TargetSelector: selectNodes(label, 3), Parameters: v1alpha1.Parameters{"a": "b"}, TTL: metav1.Duration{Duration: 2 * time.Hour}},
		v1alpha1.LabelTrigger, "nightly", "team", "storage")
	b.waitFor("they are made", func() bool { return targets(b.get(d)) == v1alpha1.Targets{Matched: 4, Created: 3} })
	list := b.children(d)
	var nodes []string
	for i := range list {
		c := &list[i]
		nodes = append(nodes, c.Spec.NodeName)
		o := metav1.GetControllerOf(c)
		if o == nil || o.UID != b.get(d).UID || o.BlockOwnerDeletion == nil || !*o.BlockOwnerDeletion {
			t.Errorf("owner %+v", o)
		}
		if c.Spec.OperationSet != d.Spec.OperationSet || c.Spec.Parameters["a"] != "b" || c.Spec.TTL.Duration != 2*time.Hour || c.Labels["team"] != "storage" || c.Labels[v1alpha1.LabelTrigger] != "nightly" || !strings.HasPrefix(c.Name, d.Name+"-") {
			t.Errorf("%s %+v %v", c.Name, c.Spec, c.Labels)
		}
	}
	if slices.Sort(nodes); !slices.Equal(nodes, names[:3]) {
		t.Errorf("nodes %v, want the first of %v", nodes, names)
	}
	if have := is(b.get(d)); have != "Running False "+v1alpha1.ReasonTargetsRun {
		t.Error(have)
	}
	b.write(&list[0], finish(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, time.Now()))
	b.waitFor("one is counted", func() bool { return targets(b.get(d)) == v1alpha1.Targets{Matched: 4, Created: 3, Succeeded: 1} })
	b.write(&list[1], finish(v1alpha1.PhaseFailed, v1alpha1.ReasonNoPathSucceeded, time.Now()))
	b.delete(&list[2])
	contains(t, b.waitIs(d, "Succeeded True "+v1alpha1.ReasonTargetsSucceeded), "1 of 3 targets have succeeded", "1 more")
	if have := targets(b.get(d)); have != (v1alpha1.Targets{Matched: 4, Created: 3, Succeeded: 1, Failed: 2}) {
		t.Errorf("%+v", have)
	}
}

func TestTargetsThatArePods(t *testing.T) {
	b := newBench(t)
	b.control(nil)
	name, other := b.server.Node(t), b.server.Namespace(t)
	b.agent(name)
	web := map[string]string{"app": "web"}
	b.running(b.podIn(other, "a", name, web))
	b.running(b.podIn(other, "b", name, web))
	b.podIn(other, "begins", name, web)
	b.podIn(other, "waits", "", web)
	b.running(b.podIn(other, "else", name, map[string]string{"app": "db"}))
	b.running(b.podIn(b.namespace, "c", name, web))
	set := b.set()
	pick := func(s v1alpha1.TargetSelector) *v1alpha1.Diagnosis {
		return b.dx(v1alpha1.DiagnosisSpec{OperationSet: set, TargetSelector: &s})
	}
	by := &v1alpha1.LabelSelector{MatchLabels: web}
	all := pick(v1alpha1.TargetSelector{PodSelector: by, Namespaces: []string{other, b.namespace}})
	own := pick(v1alpha1.TargetSelector{PodSelector: by})
	named := pick(v1alpha1.TargetSelector{PodReferences: []v1alpha1.PodReference{{Namespace: other, Name: "else", Container: "main"}, {Name: "no-such-pod"}}})
	none := pick(v1alpha1.TargetSelector{PodSelector: &v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": "none"}}})
	contains(t, b.waitIs(all, "Running False "+v1alpha1.ReasonTargetsRun), "pods left out: 1 not running, 1 on no node")
	b.waitIs(none, "Failed True "+v1alpha1.ReasonNoTargets)
	b.waitFor("they are made", func() bool {
		return targets(b.get(all)).Created == 3 && targets(b.get(own)).Created == 1 && targets(b.get(named)).Created == 2
	})
	for _, c := range b.children(all) {
		if p := c.Spec.PodReference; c.Spec.NodeName != name || p == nil || p.Namespace == "" || !slices.Contains([]string{"a", "b", "c"}, p.Name) {
			t.Errorf("%+v", c.Spec)
		}
		b.write(&c, finish(v1alpha1.PhaseFailed, v1alpha1.ReasonNoPathSucceeded, time.Now()))
	}
	contains(t, b.waitIs(all, "Failed True "+v1alpha1.ReasonNoTargetSucceeded), "0 of 3", "pods left out: 1 not running")
	b.waitFor("the one that is not there is counted", func() bool { return targets(b.get(named)).Failed == 1 })
	for _, c := range b.children(named) {
		if c.Spec.PodReference.Name == "else" {
			b.waitFor("it is placed", func() bool { return b.get(&c).Spec.NodeName == name })
		}
	}
}

func TestTargetsEndAsTheirsDo(t *testing.T) {
	b := newBench(t)
	b.control(nil)
	label := b.name("pool")
	for _, n := range b.nodes(label, 2) {
		b.agent(n)
	}
	set := b.set()
	for want, phases := range map[string][2]v1alpha1.Phase{
		"Succeeded True " + v1alpha1.ReasonTargetsSucceeded: {v1alpha1.PhaseSucceeded, v1alpha1.PhaseUnknown},
		"Unknown True " + v1alpha1.ReasonOutcomeUnknown:     {v1alpha1.PhaseFailed, v1alpha1.PhaseUnknown},
		"Failed True " + v1alpha1.ReasonNoTargetSucceeded:   {v1alpha1.PhaseFailed, v1alpha1.PhaseFailed},
	} {
		d := b.dx(v1alpha1.DiagnosisSpec{OperationSet: set, TargetSelector: selectNodes(label, 0)})
		b.waitFor("they are made", func() bool { return targets(b.get(d)).Created == 2 })
		for i, c := range b.children(d) {
			b.write(&c, finish(phases[i], "AsSaid", time.Now()))
		}
		b.waitIs(d, want)
	}
	d := b.dx(v1alpha1.DiagnosisSpec{OperationSet: set, TargetSelector: selectNodes(label, 0)})
	b.waitFor("they are made", func() bool { return targets(b.get(d)).Created == 2 })
	b.waitFor("it is cancelled", func() bool {
		have := b.get(d)
		have.Spec.Cancel = true
		return b.client.Update(t.Context(), have) == nil
	})
	for _, c := range b.children(d) {
		b.waitFor("its Diagnosis is", func() bool { return b.get(&c).Spec.Cancel })
		b.write(&c, finish(v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelled, time.Now()))
	}
	b.waitIs(d, "Cancelled True "+v1alpha1.ReasonCancelled)
	b.waitIs(b.dx(v1alpha1.DiagnosisSpec{OperationSet: set, TargetSelector: selectNodes(label, 0), Cancel: true}), "Cancelled True "+v1alpha1.ReasonCancelled)
	contains(t, b.waitIs(b.dx(v1alpha1.DiagnosisSpec{OperationSet: "no-such-set", TargetSelector: selectNodes(label, 0)}), "Failed True "+v1alpha1.ReasonOperationSetNotFound), "no-such-set")
	contains(t, b.waitIs(b.dx(v1alpha1.DiagnosisSpec{OperationSet: b.set("no-such-operation"), TargetSelector: selectNodes(label, 0)}), "Failed True "+v1alpha1.ReasonOperationSetNotReady), "no-such-operation")
}

// An invalid target does not prevent the others from being diagnosed.
func TestTargetThatCanBeNone(t *testing.T) {
	b := newBench(t)
	b.control(nil)
	d := b.dx(v1alpha1.DiagnosisSpec{OperationSet: b.set(), TargetSelector: &v1alpha1.TargetSelector{NodeNames: []string{"Not_A_Node", "no-such-node"}}})
	contains(t, b.waitIs(d, "Failed True "+v1alpha1.ReasonNoTargetSucceeded), "0 of 1", "1 unusable as a target", "Not_A_Node")
}

var errCut = errors.New("the process is killed")

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// When a controller ends in the middle of creating 500 targets, the next one continues: each has
// exactly one Diagnosis.
func TestCrashBetweenTargets(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	label := b.name("pool")
	b.nodes(label, 500)
	to := b.server.Admin()
	to.QPS, to.Burst = -1, 0
	var made atomic.Int32
	cut := make(chan struct{}) // closed after the last that is created
	to.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/diagnoses") {
				switch n := made.Add(1); {
				case n == 200: // it is created, but the response is lost
					if answer, err := next.RoundTrip(r); err == nil {
						answer.Body.Close()
					}
					close(cut)
					return nil, errCut
				case n > 200:
					return nil, errCut
				}
			}
			if made.Load() >= 200 && r.Method != http.MethodGet {
				return nil, errCut
			}
			return next.RoundTrip(r)
		})
	})
	first := b.controlAs(how{to: to})
	d := b.dx(v1alpha1.DiagnosisSpec{OperationSet: b.set(), TargetSelector: selectNodes(label, 500)})
	select {
	case <-cut:
	case <-time.After(testenv.Within(time.Minute)):
		t.Fatalf("only %d are made", made.Load())
	}
	_ = first.stop()
	if n := len(b.children(d)); n != 200 || b.get(d).Status.Targets != nil || b.get(d).Status.Phase != v1alpha1.PhaseRunning {
		t.Fatalf("%d are made, targets %+v", n, b.get(d).Status.Targets)
	}
	began := time.Now()
	slow := b.server.Admin() // the command's defaults
	slow.QPS, slow.Burst = 50, 100
	b.controlAs(how{to: slow})
	b.waitFor("the second goes on", func() bool { return targets(b.get(d)).Created == 500 })
	t.Logf("300 more after %s", time.Since(began).Round(time.Millisecond))
	seen := map[string]bool{}
	list := b.children(d)
	for i := range list {
		seen[list[i].Spec.NodeName] = true
	}
	if len(list) != 500 || len(seen) != 500 {
		t.Fatalf("%d Diagnoses of %d nodes", len(list), len(seen))
	}
	began = time.Now()
	var wait sync.WaitGroup
	for part := range slices.Chunk(list, 63) {
		wait.Go(func() {
			for i := range part {
				phase := v1alpha1.PhaseFailed
				if strings.HasSuffix(part[i].Spec.NodeName, "0") {
					phase = v1alpha1.PhaseSucceeded
				}
				b.write(&part[i], finish(phase, "AsSaid", time.Now()))
			}
		})
	}
	wait.Wait()
	contains(t, b.waitIs(d, "Succeeded True "+v1alpha1.ReasonTargetsSucceeded), "50 of 500 targets have succeeded")
	t.Logf("ended after %s", time.Since(began).Round(time.Millisecond))
}
