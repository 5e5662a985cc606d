package monitoring_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/netlab"
)

// apply creates objects, unless they exist.
func (s *stage) apply(objects ...client.Object) {
	s.t.Helper()
	for _, o := range objects {
		if err := s.people.Create(s.t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			s.t.Fatal(err)
		}
	}
}

// triggers creates the shipped set for OOM kills, a set that cordons the node after a kill, with a
// policy that allows it, a scheduled one, and an invalid one. No other set has a repair, because it
// would hold the node until its problem has ended.
func (s *stage) triggers() {
	s.t.Helper()
	for _, name := range []string{"oom-kill"} {
		all, err := manifest.Shipped(name)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, o := range all.Objects() {
			s.apply(o)
		}
	}
	patch := []byte(`{"metadata":{"labels":{"repaired":"` + s.node + `"}}}`)
	if _, err := s.server.Client().CoreV1().Nodes().Patch(s.t.Context(), s.node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
	set := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: "cordon"}}
	set.Spec.AdjacencyList = []v1alpha1.Node{{ID: 0, To: []int32{1}}, {ID: 1, Operation: "kernel-facts", To: []int32{2}}, {ID: 2, Operation: "cordon"}}
	facts := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: "facts"}}
	facts.Spec.AdjacencyList = []v1alpha1.Node{{ID: 0, To: []int32{1}}, {ID: 1, Operation: "kernel-facts"}}
	killed := &v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: "killed"}}
	killed.Spec.OperationSet = set.Name
	killed.Spec.SourceTemplate.ProblemTemplate = &v1alpha1.ProblemTemplate{Rules: []string{"kills-here"}}
	limited := &v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: "limited"}}
	limited.Spec.OperationSet = facts.Name
	limited.Spec.RateLimit.Count = 1
	limited.Spec.SourceTemplate.ProblemTemplate = &v1alpha1.ProblemTemplate{Rules: []string{"oom-kill"}}
	often := &v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: "often"}}
	often.Spec.OperationSet, often.Spec.NodeName = facts.Name, s.node
	often.Spec.RateLimit.Count = 2
	often.Spec.SourceTemplate.CronTemplate = &v1alpha1.CronTemplate{Schedule: "@every 2s"}
	wrong := &v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: "wrong"}}
	wrong.Spec.OperationSet, wrong.Spec.NodeName = facts.Name, s.node
	wrong.Spec.SourceTemplate.CronTemplate = &v1alpha1.CronTemplate{Schedule: "61 * * * *"}
	policy := &v1alpha1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "enforce"}}
	policy.Spec.Mode = v1alpha1.ModeEnforce
	policy.Spec.NodeSelector.MatchLabels = map[string]string{"repaired": s.node}
	paused := &v1alpha1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "paused"}}
	paused.Spec.Mode, paused.Spec.Pause = v1alpha1.ModeEnforce, true
	paused.Spec.NodeSelector.MatchLabels = map[string]string{"paused": s.node}
	s.apply(set, facts, killed, limited, often, wrong, policy, paused)
	s.await(s.t, "the agent's triggers", time.Minute, func(context.Context) (bool, string) {
		text, err := os.ReadFile(filepath.Join(s.agent.State, "diagnose", "objects.json"))
		return strings.Contains(string(text), `"killed"`) && strings.Contains(string(text), `"limited"`), fmt.Sprint(err)
	})
}

// provoke causes the faults; those that last do so until heal is called.
func (s *stage) provoke(t *testing.T) (heal func()) {
	t.Helper()
	ctx := t.Context()
	oom := &inject.OOM{StateDir: t.TempDir()}
	agenttest.Injected(t, oom.Start(ctx))
	for range 6 {
		_, err := oom.Kill(ctx)
		agenttest.Injected(t, err)
	}
	agenttest.Injected(t, oom.Close())
	// Of a pod that no longer exists in the API server.
	agenttest.KillIn(t, agenttest.PodGroup(t, "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", 32<<20))

	disk := &inject.DiskError{Kind: inject.DiskWrite, StateDir: t.TempDir()}
	agenttest.Injected(t, disk.Start(ctx))
	for range 8 {
		if _, ioErr, err := disk.Fail(); ioErr == nil || err != nil {
			t.Fatal(ioErr, err)
		}
	}
	agenttest.Injected(t, disk.Close())

	readonly := &inject.ReadonlyFS{StateDir: t.TempDir()}
	agenttest.Injected(t, readonly.Start(ctx))
	frozen := &inject.FSFreeze{StateDir: t.TempDir()}
	_, err := frozen.Start(ctx)
	agenttest.Injected(t, err)

	queue, ok := inject.Find(string(inject.ProbeQueueFull))
	if !ok {
		t.Fatal("there is no such fault")
	}
	s.broken.Store(true)
	_, err = queue.Run(ctx, inject.Env{Count: 4, TargetsDir: s.agent.Targets, StateDir: t.TempDir(), WaitTarget: s.agent.Watched})
	agenttest.Injected(t, err)
	return func() {
		agenttest.Injected(t, readonly.Close())
		agenttest.Injected(t, frozen.Close())
	}
}

// probed creates a pod that the stand-in for kubelet probes, at a port where nothing listens.
func (s *stage) probed(t *testing.T) {
	t.Helper()
	from, to := netlab.Pair(t)
	to.Listen("10.97.31.2:81", 5)
	namespace := s.server.Namespace(t)
	s.server.ProbedPod(t, namespace, s.node, "10.97.31.2", corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80), Path: "/healthz"}})
	agenttest.Prober(t, from, "http://10.97.31.2:80/healthz")
}

// strangers sends alerts without the right to.
func (s *stage) strangers(t *testing.T) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // it only knocks
	defer client.CloseIdleConnections()
	for range 3 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.alerts+"/api/v2/alerts", strings.NewReader("[]"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer nobody")
		r.Header.Set("Content-Type", "application/json")
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
	}
}

// log writes a line to the application's log.
func (s *stage) log(t *testing.T, line string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(s.dir, "app.log"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, line); err != nil {
		t.Fatal(err)
	}
}

// silent adds a second node whose agent has stopped without shutting down.
func (s *stage) silent(t *testing.T) {
	t.Helper()
	name := s.server.Node(t)
	node, err := s.server.Client().CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now, seconds := metav1.NowMicro(), int32(1)
	_, err = s.server.Client().CoordinationV1().Leases(s.namespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: lease.Name(name), Labels: map[string]string{lease.LabelComponent: lease.ComponentAgent},
			Annotations:     map[string]string{lease.AnnotationTypes: "KernelDeadlock"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// truncated empties the log that the agent reads.
func (s *stage) truncated(t *testing.T) {
	t.Helper()
	if err := os.Truncate(filepath.Join(s.dir, "app.log"), 0); err != nil {
		t.Fatal(err)
	}
	s.log(t, "again")
}
