package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/why"
	"github.com/kernosis/kernosis/diagnose/why/cluster"
	"github.com/kernosis/kernosis/docs/problems"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/kube/events"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

// scene is a pod on a node whose agent has detected something.
type scene struct {
	t                    *testing.T
	server               *kubetest.Server
	node, system, tenant string
	pod                  *corev1.Pod
}

type podsOf struct{ pod *corev1.Pod }

func (p podsOf) Known(time.Time) bool { return true }
func (p podsOf) Pod(uid string) (pods.Pod, bool) {
	return pods.Pod{UID: string(p.pod.UID), Namespace: p.pod.Namespace, Name: p.pod.Name}, uid == string(p.pod.UID)
}

func newScene(t *testing.T) *scene {
	t.Helper()
	server := shared.Server(t)
	server.CRDs(t)
	s := &scene{t: t, server: server, node: server.Node(t), system: server.Namespace(t), tenant: server.Namespace(t)}
	s.pod = server.Pod(t, s.tenant, "web-1", s.node)
	s.lease(time.Now())
	s.status()
	return s
}

// status writes the pod's status like kubelet: the container was killed and runs again.
func (s *scene) status() {
	s.t.Helper()
	now := metav1.Now()
	s.pod.Status.Phase = corev1.PodRunning
	s.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", ContainerID: "containerd://" + strings.Repeat("8a", 32), RestartCount: 2, Ready: true,
		State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", FinishedAt: now, ContainerID: "containerd://" + strings.Repeat("7b", 32)}},
	}}
	var err error
	if s.pod, err = s.server.Client().CoreV1().Pods(s.tenant).UpdateStatus(s.t.Context(), s.pod, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) lease(renewed time.Time) {
	s.t.Helper()
	leases := s.server.Client().CoordinationV1().Leases(s.system)
	at, seconds := metav1.NewMicroTime(renewed), int32(400)
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: lease.Name(s.node), Labels: map[string]string{lease.LabelComponent: lease.ComponentAgent}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &s.node, LeaseDurationSeconds: &seconds, RenewTime: &at},
	}
	_ = leases.Delete(s.t.Context(), l.Name, metav1.DeleteOptions{})
	if _, err := leases.Create(s.t.Context(), l, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// kill makes the real sink report an OOM kill in the pod.
func (s *scene) kill() {
	s.t.Helper()
	dir := s.t.TempDir()
	j, err := journal.Open(filepath.Join(dir, "journal"), journal.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer j.Close()
	sink, err := events.New(events.Config{
		Node: s.node, Client: s.server.Client(), Pods: podsOf{s.pod}, Dir: dir, JournalDir: filepath.Join(dir, "journal"), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	now := time.Now()
	uid := string(s.pod.UID)
	ev := &event.Event{
		Kind: event.OOMKill, Time: now, CPU: 1, Task: &event.Task{PID: 4122, Comm: "worker"}, Container: &event.Container{ID: strings.Repeat("7b", 32), PodUID: uid},
		OOMKill: &event.OOMKillData{Scope: "memcg", Limit: 32 << 20, Usage: 32 << 20, AnonRSS: 31 << 20},
	}
	e := journal.Entry{Now: now, Event: ev, Transitions: []problem.Transition{{Problem: &problem.Problem{
		Rule: "oom-kill", Group: "g", Pod: uid, Reason: "OOMKilling", Message: "worker[4122] in pod " + uid + " container 7b7b7b7b7b7b killed at its limit of 32 MiB",
		Severity: problem.Warning, State: problem.Firing, FirstSeen: now, LastSeen: now, Doc: "problems/OOMKilling",
	}}}}
	e.Seq, _, err = j.Add(e)
	if err = errors.Join(err, j.Flush()); err != nil {
		s.t.Fatal(err)
	}
	sink.Add(e)
	sink.Flush(e.Seq)
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- sink.Run(ctx) }()
	testenv.Until(s.t, "the Events", time.Minute, func() bool { return sink.Stats().Requests[events.Created] >= 2 })
	cancel()
	if err := <-ended; err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) read(to *rest.Config, subject why.Subject) (why.Input, error) {
	s.t.Helper()
	in, err := cluster.Read(s.t.Context(), cluster.Config{REST: to, Subject: subject, Namespaces: []string{s.system}, Now: time.Now(), Since: time.Hour})
	in.Advice = problems.Advice
	return in, err
}

func (s *scene) ofPod() why.Subject {
	return why.Subject{Kind: why.KindPod, Namespace: s.tenant, Name: "web-1"}
}

// text returns the answer, with placeholders for what differs from run to run.
func (s *scene) text(in why.Input) string {
	s.t.Helper()
	var b strings.Builder
	a := why.Build(in)
	if err := a.WriteText(&b, why.View{}); err != nil {
		s.t.Fatal(err)
	}
	return strings.NewReplacer(s.tenant, "TENANT", s.system, "SYSTEM", s.node, "NODE").Replace(b.String()) + "# " + string(a.Outcome)
}

func (s *scene) wants(text string, all ...string) {
	s.t.Helper()
	for _, want := range all {
		if !strings.Contains(text, want) {
			s.t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// The API alone is enough for a full answer, from the agent's Events with their evidence, the pod's
// status, kubelet's Events, and a Diagnosis.
func TestPod(t *testing.T) {
	s := newScene(t)
	in, err := s.read(s.server.Admin(), s.ofPod())
	if err != nil {
		t.Fatal(err)
	}
	// So far there is only kubelet's status.
	text := s.text(in)
	s.wants(text, "TENANT/web-1: running since", "restarted 2 times", "CAUSE   container main ended with exit code 137 (SIGKILL), OOMKilled", "kubectl logs -n TENANT web-1 -c main --previous", "# cause")

	s.kill()
	s.status() // the container ends after the kill, however long that took
	s.kubelet("Unhealthy", "Liveness probe failed: context deadline exceeded")
	if in, err = s.read(s.server.Admin(), s.ofPod()); err != nil {
		t.Fatal(err)
	}
	text = s.text(in)
	s.wants(text, "CAUSE   OOMKilling: worker[4122] in pod TENANT/web-1 container main killed at its limit of 32 MiB", "LED TO  container main ended with exit code 137",
		"32 MiB used of the 32 MiB limit of its cgroup", "kubelet: Unhealthy: Liveness probe failed: context deadline exceeded",
		"NOT     node out of memory", "DO      Own limit:", "docs/problems/OOMKilling", "# cause")
	if strings.Contains(text, "UNREAD") || strings.Contains(text, "BLIND") {
		t.Error(text)
	}
	s.diagnosis(s.system)
	if in, err = s.read(s.server.Admin(), s.ofPod()); err != nil {
		t.Fatal(err)
	}
	s.wants(s.text(in), "CAUSE   LimitTooLow: 31 MiB of 32 MiB are anonymous", "LED TO  worker[4122]", "NOT     NodeHasMemory: 2 GiB available", "found LimitTooLow by cgroup-memory, check-limit-too-low")

	// The answer about the node is the same, with the pod's name.
	if in, err = s.read(s.server.Admin(), why.Subject{Kind: why.KindNode, Name: s.node}); err != nil {
		t.Fatal(err)
	}
	s.wants(s.text(in), "node NODE: Ready, ", "CAUSE   LimitTooLow", "LED TO  worker[4122] in pod TENANT/web-1")
}

// A user writes which problem a Diagnosis is about, so it explains only pods of its own namespace.
func TestDiagnosesOfUsers(t *testing.T) {
	s := newScene(t)
	s.diagnosis(s.tenant)
	s.diagnosis(s.server.Namespace(t))
	for subject, want := range map[why.Subject]int{s.ofPod(): 1, {Kind: why.KindNode, Name: s.node}: 0} {
		in, err := s.read(s.server.Admin(), subject)
		if err != nil {
			t.Fatal(err)
		}
		if len(in.Diagnoses) != want || want > 0 && in.Diagnoses[0].Namespace != s.tenant {
			t.Errorf("%s: %+v", &subject, in.Diagnoses)
		}
	}
}

// A user who may read only the pod gets an answer from that, and a list of what is missing.
func TestForbidden(t *testing.T) {
	s := newScene(t)
	s.kill()
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}
	s.server.Grant(t, "reader-"+s.tenant, s.tenant, rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{Kind: "Role"}, Rules: []rbacv1.PolicyRule{rule}})
	in, err := s.read(s.server.Config(t, "reader-"+s.tenant), s.ofPod())
	if err != nil {
		t.Fatal(err)
	}
	s.wants(s.text(in), "CAUSE   container main ended", "UNREAD  Events of TENANT/web-1: permission denied", "conditions of node NODE: permission denied", "Lease of the agent in SYSTEM", "Diagnoses in", "# cause")
	// Without any permission there is no error either, but the pod can't be called healthy.
	if in, err = s.read(s.server.Config(t, "nobody-"+s.tenant), s.ofPod()); err != nil {
		t.Fatal(err)
	}
	s.wants(s.text(in), "CAUSE   none known", "pod TENANT/web-1: permission denied", "# blind")
}

// If the agent is silent or missing, the answer is blind.
func TestSilentAgent(t *testing.T) {
	s := newScene(t)
	s.lease(time.Now().Add(-time.Hour))
	node := why.Subject{Kind: why.KindNode, Name: s.node}
	in, err := s.read(s.server.Admin(), node)
	if err != nil {
		t.Fatal(err)
	}
	s.wants(s.text(in), "CAUSE   none known", "BLIND   agent of node NODE: it is silent: its Lease has expired (since ", "# blind")
	s.lease(time.Now().Add(-440 * time.Second)) // within the Lease's 400 s and a quarter more
	if in, err = s.read(s.server.Admin(), node); err != nil {
		t.Fatal(err)
	}
	s.wants(s.text(in), "CAUSE   none known", "# healthy")
	if err := s.server.Client().CoordinationV1().Leases(s.system).Delete(t.Context(), lease.Name(s.node), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if in, err = s.read(s.server.Admin(), node); err != nil {
		t.Fatal(err)
	}
	s.wants(s.text(in), "there is no agent: no Lease", "# blind")
}

func TestWhatIsNotThere(t *testing.T) {
	s := newScene(t)
	for _, subject := range []why.Subject{{Kind: why.KindPod, Namespace: s.tenant, Name: "none"}, {Kind: why.KindNode, Name: "none"}} {
		if in, err := s.read(s.server.Admin(), subject); err == nil || !strings.Contains(err.Error(), "there is no "+subject.Kind) {
			t.Errorf("%+v, %v", in, err)
		}
	}
	// A deleted pod has left Events.
	s.kill()
	s.server.DeletePod(t, s.tenant, "web-1")
	in, err := s.read(s.server.Admin(), s.ofPod())
	if err != nil {
		t.Fatal(err)
	}
	s.wants(s.text(in), "CAUSE   OOMKilling: worker[4122] in pod TENANT/web-1", "no such pod", "# cause")
	if _, err := s.read(&rest.Config{Host: "https://127.0.0.1:1"}, s.ofPod()); err == nil {
		t.Error("a server that is not there has answered")
	}
}

// Several pods have had the name of a deleted pod: the answer is about the latest.
func TestDeletedPods(t *testing.T) {
	s := newScene(t)
	s.server.DeletePod(t, s.tenant, "web-1")
	now := time.Now()
	for _, e := range []struct {
		name, by, message string
		uid               types.UID
		at                time.Time
	}{
		{"web-1.a", "kubelet", "first pod unhealthy", "u1", now.Add(-10 * time.Minute)},
		{"web-1.b", events.Component, "first pod killed", "u1", now.Add(-10 * time.Minute)},
		{"web-1.c", events.Component, "third pod killed", "u3", now.Add(-time.Minute)},
		{"web-1.d", events.Component, "second pod killed", "u2", now.Add(-5 * time.Minute)},
		{"web-1.e", "kubelet", "third pod unhealthy", "u3", now.Add(-time.Minute)},
	} {
		_, err := s.server.Client().CoreV1().Events(s.tenant).Create(t.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: e.name},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: s.tenant, Name: "web-1", UID: e.uid},
			Reason:         "Reason", Message: e.message, Type: "Warning", Count: 1,
			FirstTimestamp: metav1.NewTime(e.at), LastTimestamp: metav1.NewTime(e.at), Source: corev1.EventSource{Component: e.by, Host: s.node},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	in, err := s.read(s.server.Admin(), s.ofPod())
	if err != nil {
		t.Fatal(err)
	}
	if in.Subject.UID != "u3" || len(in.Problems) != 1 || in.Problems[0].Message != "third pod killed" || len(in.Events) != 1 || in.Events[0].Message != "third pod unhealthy" {
		t.Errorf("UID %s, %+v, %+v", in.Subject.UID, in.Problems, in.Events)
	}
}

// kubelet creates an Event by kubelet about the pod's container.
func (s *scene) kubelet(reason, message string) {
	s.t.Helper()
	now := metav1.Now()
	_, err := s.server.Client().CoreV1().Events(s.tenant).Create(s.t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "web-1."},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: s.tenant, Name: "web-1", UID: s.pod.UID, FieldPath: "spec.containers{main}"},
		Reason:         reason, Message: message, Type: "Warning", Count: 1, FirstTimestamp: now, LastTimestamp: now, Source: corev1.EventSource{Component: "kubelet", Host: s.node},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}

// diagnosis creates a Diagnosis in a namespace, with the verdict of the node's agent.
func (s *scene) diagnosis(namespace string) {
	s.t.Helper()
	c := apitest.Client(s.t, s.server.Admin())
	d := &v1alpha1.Diagnosis{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "oom-kill-5f3c9a"},
		Spec: v1alpha1.DiagnosisSpec{
			OperationSet: "oom-kill", NodeName: s.node, PodReference: &v1alpha1.PodReference{Namespace: s.tenant, Name: "web-1"},
			Parameters: v1alpha1.Parameters{"rule": "oom-kill", "reason": "OOMKilling", "podUID": string(s.pod.UID)},
		},
	}
	if err := c.Create(s.t.Context(), d); err != nil {
		s.t.Fatal(err)
	}
	at := metav1.NowMicro()
	status, err := json.Marshal(map[string]any{"status": v1alpha1.DiagnosisStatus{
		Phase: v1alpha1.PhaseSucceeded, StartTime: &at, CompletionTime: &at, Verdict: &v1alpha1.Verdict{Reason: "LimitTooLow", Message: "31 MiB of 32 MiB are anonymous"},
		SucceededPath: v1alpha1.Path{1, 3},
		Results: []v1alpha1.Result{
			{ID: 1, Operation: "cgroup-memory", State: v1alpha1.ResultSucceeded},
			{ID: 2, Operation: "check-node-overcommitted", State: v1alpha1.ResultRefuted, Reason: "NodeHasMemory", Message: "2 GiB available"},
			{ID: 3, Operation: "check-limit-too-low", State: v1alpha1.ResultSucceeded},
		},
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := c.Status().Patch(s.t.Context(), d, client.RawPatch(types.MergePatchType, status)); err != nil {
		s.t.Fatal(err)
	}
	if !slices.ContainsFunc(d.Status.Results, func(r v1alpha1.Result) bool { return r.ID == 2 }) {
		s.t.Fatalf("%+v", d.Status)
	}
}
