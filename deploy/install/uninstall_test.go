package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// reporting runs what an agent writes to its Node, until the API server has it.
func (b *bench) reporting(node string) {
	b.Helper()
	written := make(chan struct{}, 16)
	p, err := conditions.New(conditions.Config{
		Client: b.api, Node: node, Coalesce: time.Millisecond, StartJitter: -1, OnAck: func(conditions.Ack) { written <- struct{}{} },
	})
	b.must(err)
	k, err := lease.New(lease.Config{Client: b.api, Namespace: b.namespace, Node: node, Types: p.Types, StartJitter: -1})
	b.must(err)
	err = p.Set([]problem.Condition{
		{Type: "KernelDeadlock", Status: problem.True, Reason: "TaskHung", Message: "task 4711 hangs"},
		{Type: "ReadonlyFilesystem", Status: problem.False, Reason: "FilesystemIsNotReadOnly", Message: "is writable"},
		{Type: "KernosisDegraded", Status: problem.False, Reason: "KernosisIsComplete", Message: "all is seen"},
	})
	b.must(err)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 2)
	go func() { ended <- p.Run(ctx) }()
	go func() { ended <- k.Run(ctx) }()
	<-written
	for slices.Contains(b.leases(), lease.Name(node)) == false {
		time.Sleep(10 * time.Millisecond) // polling interval
	}
	cancel()
	for range 2 {
		b.must(<-ended)
	}
}

// nextSecond waits until the next second, because the API server records times of writes in whole
// seconds.
func (b *bench) nextSecond() {
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
}

func TestUninstall(t *testing.T) {
	b := newBench(t)
	reported, spoken, cordoned, persons, silent := b.server.Node(t), b.server.Node(t), b.server.Node(t), b.server.Node(t), b.server.Node(t)

	// A node as an agent leaves it, with conditions of others.
	b.writes("node-problem-detector", reported,
		corev1.NodeCondition{Type: "ReadonlyFilesystem", Status: "False", Reason: "FilesystemIsNotReadOnly", Message: "is writable"}, // of earlier
		corev1.NodeCondition{Type: "FrequentKubeletRestart", Status: "False", Reason: "NoFrequentKubeletRestart"})
	b.nextSecond()
	b.reporting(reported)
	b.nextSecond()
	b.writes("somebody", reported, corev1.NodeCondition{Type: "KernelDeadlock", Status: "False", Reason: "Mine", Message: "taken over"})
	b.writes(conditions.FieldManager, reported, corev1.NodeCondition{Type: conditions.Contested, Status: "True", Reason: "AnotherWriter"})

	// A node for which the controller has written, without a Lease.
	b.writes(lease.Controller, spoken, corev1.NodeCondition{Type: "DiskStalled", Status: "Unknown", Reason: lease.ReasonNeverUpdated})

	// A node that a repair has cordoned, with another taint set by a person.
	n := b.node(cordoned)
	n.Spec.Taints = []corev1.Taint{{Key: "person", Effect: corev1.TaintEffectNoSchedule}}
	for _, act := range []policy.Act{{Diagnosis: "d1"}, {Diagnosis: "d2"}, {Diagnosis: "d2", Taint: &corev1.Taint{Key: "stalled", Value: "disk", Effect: corev1.TaintEffectNoSchedule}}} {
		_, err := policy.Do(n, act)
		b.must(err)
	}
	_, err := b.api.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
	b.must(err)
	b.patch(persons, `{"spec":{"unschedulable":true}}`)
	b.leaseOf("gone-since", "KernelDeadlock")

	// A node that is not ready: its pod can't be awaited.
	b.writes("kubelet", silent, corev1.NodeCondition{Type: corev1.NodeReady, Status: "Unknown", Reason: "NodeStatusUnknown"})
	b.writes(conditions.FieldManager, silent, corev1.NodeCondition{Type: "KernelDeadlock", Status: "False", Reason: "NoHungTasks"})
	b.leaseOf(silent, "KernelDeadlock")

	agents := b.installed(reported, spoken, silent)
	b.collect(func() {
		if got := b.conditions(reported); len(got) != 5 || !b.node(cordoned).Spec.Unschedulable {
			t.Errorf("something was undone while agents ran: %q", got)
		}
	}, agents[:2]...)
	b.must(Uninstall(within(t, time.Minute), b.config()))
	b.says("DaemonSet kernosis-agent is deleted, 2 pods have stopped", "Deployment kernosis-controller is deleted",
		"not waiting for pod "+agents[2]+" on node "+silent,
		"conditions removed from 3 nodes: DiskStalled, KernelDeadlock, KernosisConditionContested, KernosisDegraded, ReadonlyFilesystem",
		"condition KernelDeadlock (somebody) stays on 1 nodes", "node "+cordoned+": cordon is undone", "node "+cordoned+": taint stalled=disk:NoSchedule is undone",
		"ConfigMap kernosis-trigger-state is deleted", "Lease controller.kernosis.io is deleted")

	if got := b.conditions(reported); !slices.Equal(got, []string{"FrequentKubeletRestart", "KernelDeadlock"}) {
		t.Errorf("%s has %q", reported, got)
	}
	for _, name := range []string{spoken, silent} {
		if got := b.conditions(name); len(got) > 0 {
			t.Errorf("%s has %q", name, got)
		}
	}
	if n := b.node(reported); len(n.Status.Conditions) != 4 {
		t.Errorf("kubelet's conditions have changed: %+v", n.Status.Conditions)
	}
	n = b.node(cordoned)
	_, marked := n.Annotations[policy.AnnotationActs]
	if n.Spec.Unschedulable || marked || len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "person" {
		t.Errorf("%s is %+v %v", cordoned, n.Spec, n.Annotations)
	}
	if !b.node(persons).Spec.Unschedulable {
		t.Error("a person's cordon was undone")
	}
	if left := b.leases(); len(left) > 0 {
		t.Errorf("leases are left: %q", left)
	}

	// Again, with nothing left to do.
	version := b.node(reported).ResourceVersion
	b.must(Uninstall(within(t, time.Minute), b.config()))
	b.says("DaemonSet kernosis-agent was not found", "no conditions of Kernosis are left on nodes")
	if b.node(reported).ResourceVersion != version {
		t.Error("the second run has written a node")
	}
}

// Nothing is removed while an agent runs, because the agent would write it again.
func TestPodsThatGoOn(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	b.writes(conditions.FieldManager, node, corev1.NodeCondition{Type: "KernelDeadlock", Status: "False", Reason: "NoHungTasks"})
	b.leaseOf(node, "KernelDeadlock")
	agents := b.installed(node)
	err := Uninstall(within(t, 3*time.Second), b.config())
	if err == nil || !strings.Contains(err.Error(), "DaemonSet kernosis-agent: timed out: 1 pods are still running: "+agents[0]+" on "+node) {
		t.Errorf("got %v", err)
	}
	if got := b.conditions(node); len(got) != 1 || len(b.leases()) != 2 {
		t.Errorf("the node has %q, leases %q", got, b.leases())
	}
	if _, err := b.api.AppsV1().Deployments(b.namespace).Get(t.Context(), DefaultDeployment, metav1.GetOptions{}); err != nil {
		t.Errorf("the controller is stopped before the agents: %v", err)
	}
	// The next Uninstall finds the pods by their labels.
	b.said()
	b.server.DeletePod(t, b.namespace, agents[0])
	b.must(Uninstall(within(t, time.Minute), b.config()))
	b.says("conditions removed from 1 nodes: KernelDeadlock")
}

func TestNodesThatCanNotBeWritten(t *testing.T) {
	b := newBench(t)
	good, refused, marred, flaky := b.server.Node(t), b.server.Node(t), b.server.Node(t), b.server.Node(t)
	all := []string{good, refused, marred, flaky}
	for _, n := range all {
		b.writes(conditions.FieldManager, n, corev1.NodeCondition{Type: "KernelDeadlock", Status: "False", Reason: "NoHungTasks"})
		b.leaseOf(n, "KernelDeadlock")
	}
	b.patch(marred, `{"metadata":{"annotations":{"kernosis.io/acts":"{"}}}`)
	var failures atomic.Int32
	c := b.config()
	answer := func(r *http.Request, code int, reason metav1.StatusReason) *http.Response {
		text := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"no write today","code":%d}`, reason, code)
		return &http.Response{
			StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)),
			ContentLength: int64(len(text)), Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		}
	}
	through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		switch {
		case r.Method != http.MethodPatch:
		case strings.Contains(r.URL.Path, refused):
			return answer(r, http.StatusForbidden, metav1.StatusReasonForbidden), nil
		case strings.Contains(r.URL.Path, flaky):
			switch failures.Add(1) {
			case 1:
				return answer(r, http.StatusInternalServerError, metav1.StatusReasonInternalError), nil
			case 2:
				return answer(r, http.StatusConflict, metav1.StatusReasonConflict), nil
			case 3:
				return nil, errors.New("connection reset by peer")
			}
		}
		return next.RoundTrip(r)
	}).of(c.To)
	err := Uninstall(within(t, time.Minute), c)
	if err == nil || !strings.Contains(err.Error(), "node "+refused+": conditions KernelDeadlock: no write today") ||
		!strings.Contains(err.Error(), "node "+marred+": undo repairs: node "+marred+": annotation kernosis.io/acts") ||
		strings.Contains(err.Error(), good) || strings.Contains(err.Error(), flaky) {
		t.Errorf("got %v", err)
	}
	if failures.Load() != 4 {
		t.Errorf("the flaky node was written %d times", failures.Load())
	}
	if got := b.leases(); !slices.Equal(got, slices.Sorted(slices.Values([]string{lease.Name(refused), lease.Name(marred)}))) {
		t.Errorf("leases left: %q, want those of unfinished nodes", got)
	}
	if got := b.conditions(refused); len(got) != 1 {
		t.Errorf("refused one has %q", got)
	}
	for _, n := range []string{good, flaky, marred} {
		if got := b.conditions(n); len(got) > 0 {
			t.Errorf("%s has %q", n, got)
		}
	}
}

// A repair by a newer version, whose kind this version can't undo, is reported as such.
func TestUnknownRepair(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	b.patch(node, `{"metadata":{"annotations":{"kernosis.io/acts":"[{\"diagnosis\":\"d\",\"kind\":\"future\",\"value\":{\"key\":\"a\",\"value\":\"b\"}},{\"diagnosis\":\"d\"}]"}},"spec":{"unschedulable":true}}`)
	err := Uninstall(within(t, time.Minute), b.config())
	if err == nil || strings.Contains(err.Error(), "reappear") ||
		!strings.Contains(err.Error(), "node "+node+": undo repairs: annotation kernosis.io/acts lists a repair that this version does not know") {
		t.Errorf("got %v", err)
	}
	b.says("node " + node + ": cordon is undone")
	if n := b.node(node); n.Spec.Unschedulable || !strings.Contains(n.Annotations[policy.AnnotationActs], `"future"`) {
		t.Errorf("%+v %v", n.Spec, n.Annotations)
	}
}

// In a wrong namespace, nothing of the running installation is removed.
func TestWrongNamespace(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	b.writes(conditions.FieldManager, node, corev1.NodeCondition{Type: "KernelDeadlock", Status: "False", Reason: "NoHungTasks"})
	b.leaseOf(node, "KernelDeadlock")
	b.patch(node, `{"metadata":{"annotations":{"kernosis.io/acts":"[{\"diagnosis\":\"d\"}]"}},"spec":{"unschedulable":true}}`)
	b.installed(node)
	before := b.node(node).ResourceVersion

	other := &bench{T: t, server: b.server, api: b.api, namespace: b.server.Namespace(t)}
	other.to = other.user("uninstall-"+other.namespace, "kernosis-uninstall")
	limited, admin := other.config(), other.config()
	admin.To, limited.Kinds, admin.Kinds = b.server.Config(t, "admin", "system:masters"), true, true
	for _, c := range []Config{limited, admin} {
		err := Uninstall(within(t, time.Minute), c)
		if err == nil || !strings.Contains(err.Error(), "node "+node) || !strings.Contains(err.Error(), "-n") ||
			strings.Contains(err.Error(), b.namespace) != (c.To == admin.To) {
			t.Errorf("got %v", err)
		}
	}
	if n := b.node(node); n.ResourceVersion != before {
		t.Errorf("the node was written: %+v", n)
	}
}

// An unknown agent writes its conditions again.
func TestConditionsThatComeBack(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	again := func() {
		b.writes(conditions.FieldManager, node, corev1.NodeCondition{Type: "KernelDeadlock", Status: "False", Reason: "NoHungTasks"})
	}
	again()
	b.leaseOf(node, "KernelDeadlock")
	c := b.config()
	through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, node+"/status") {
			again()
		}
		return answer, err
	}).of(c.To)
	err := Uninstall(within(t, time.Minute), c)
	if err == nil || !strings.Contains(err.Error(), "reappear on 1 nodes") || !strings.Contains(err.Error(), node) {
		t.Errorf("got %v", err)
	}
}

// The error names a missing right.
func TestMissingRights(t *testing.T) {
	b := newBench(t)
	c := b.config()
	c.To = b.server.Config(t, "nobody-of-"+b.namespace)
	err := Uninstall(within(t, time.Minute), c)
	if !apierrors.IsForbidden(errors.Unwrap(err)) || !strings.Contains(err.Error(), `cannot get resource "daemonsets"`) {
		t.Errorf("got %v", err)
	}
}

func TestManyNodes(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	const many = 300
	var names []string
	for range many {
		n := b.server.Node(t)
		b.writes(conditions.FieldManager, n, corev1.NodeCondition{Type: "KernelDeadlock", Status: "False", Reason: "NoHungTasks"})
		b.leaseOf(n, "KernelDeadlock")
		names = append(names, n)
	}
	var running, most, requests atomic.Int32
	c := b.config()
	through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		requests.Add(1)
		now := running.Add(1)
		defer running.Add(-1)
		for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
		}
		return next.RoundTrip(r)
	}).of(c.To)
	began := time.Now()
	b.must(Uninstall(within(t, time.Minute), c))
	t.Logf("%d nodes in %v: %d requests, %d at once", many, time.Since(began).Round(time.Millisecond), requests.Load(), most.Load())
	if most.Load() > workers || requests.Load() > 2*many+20 {
		t.Errorf("%d requests, %d at once", requests.Load(), most.Load())
	}
	for _, n := range names {
		if got := b.conditions(n); len(got) > 0 {
			t.Fatalf("%s has %q", n, got)
		}
	}
	if left := b.leases(); len(left) > 0 {
		t.Errorf("leases are left: %q", left)
	}
}
