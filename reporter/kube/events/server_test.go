package events_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/kube/events"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

var cluster = kubetest.Shared{Own: true} // one test stops it

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	os.Exit(cluster.Run(m))
}

// podMap is a PodSource with the pods that a test adds.
type podMap struct {
	mu    sync.Mutex
	known map[string]pods.Pod
}

func (m *podMap) add(p *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[string]pods.Pod{}
	}
	m.known[string(p.UID)] = pods.Pod{UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Labels: p.Labels}
}

func (m *podMap) Pod(uid string) (pods.Pod, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.known[uid]
	return p, ok
}

func (m *podMap) Known(time.Time) bool { return true }

// agent is a journal and a sink, as in the agent.
type agent struct {
	tb      testing.TB
	node    string
	server  *kubetest.Server
	client  kubernetes.Interface // with all permissions
	dir     string
	cfg     events.Config
	pods    podMap
	journal *journal.Journal
	sink    *events.Sink
	stop    func()
}

func newAgent(tb testing.TB, change func(*events.Config)) *agent {
	tb.Helper()
	server := cluster.Server(tb)
	a := &agent{tb: tb, server: server, node: server.Node(tb), dir: tb.TempDir(), client: server.Client()}
	a.cfg = events.Config{
		Node: a.node, Client: a.client, Pods: &a.pods, Dir: a.dir, JournalDir: filepath.Join(a.dir, "journal"),
		Log: slog.New(slog.DiscardHandler), PatchEvery: 50 * time.Millisecond, SaveEvery: 100 * time.Millisecond,
	}
	if change != nil {
		change(&a.cfg)
	}
	a.start()
	tb.Cleanup(func() { a.stop(); a.journal.Close() })
	return a
}

func (a *agent) start() {
	a.tb.Helper()
	var err error
	if a.journal, err = journal.Open(a.cfg.JournalDir, journal.Options{}); err != nil {
		a.tb.Fatal(err)
	}
	a.cfg.JournalSeq = a.journal.Seq()
	if a.sink, err = events.New(a.cfg); err != nil {
		a.tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.sink.Run(ctx) }()
	a.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			a.tb.Error(err)
		}
	})
}

// pod creates a pod that the agent knows.
func (a *agent) pod(namespace, name string) *corev1.Pod {
	a.tb.Helper()
	p := a.server.Pod(a.tb, namespace, name, a.node)
	a.pods.add(p)
	return p
}

// report processes a step of the engine as the agent does.
func (a *agent) report(tr ...problem.Transition) {
	a.tb.Helper()
	e := journal.Entry{Now: time.Now(), Event: &event.Event{CPU: 1}, Transitions: tr}
	seq, _, err := a.journal.Add(e)
	if err = errors.Join(err, a.journal.Flush()); err != nil {
		a.tb.Fatal(err)
	}
	e.Seq = seq
	a.sink.Add(e)
	a.sink.Flush(e.Seq)
}

// requests returns how many requests were sent, and how many of them failed.
func requests(st events.Stats) (all, failed uint64) {
	for o, n := range st.Requests {
		all += n
		if o != events.Created && o != events.Patched {
			failed += n
		}
	}
	return all, failed
}

// kill returns an OOM kill in a pod.
func kill(uid string) problem.Transition {
	now := time.Now()
	return problem.Transition{Problem: &problem.Problem{
		Rule: "oom-kill", Group: "g-" + uid, Pod: uid, Reason: "OOMKilling", Message: "java[7] in pod " + uid + " container c killed",
		Severity: problem.Warning, State: problem.Firing, FirstSeen: now, LastSeen: now,
	}}
}

// sent waits until all is sent.
func (a *agent) sent(happened uint64) {
	a.tb.Helper()
	testenv.Until(a.tb, "all is sent", time.Minute, func() bool {
		st := a.sink.Stats()
		var n uint64
		for _, r := range st.Rules {
			n += r.Happened
		}
		return n == happened && st.Waiting == 0
	})
}

// onNode returns the Events that "kubectl describe node" lists, which uses the name as UID.
func (a *agent) onNode() []corev1.Event {
	a.tb.Helper()
	return a.list(metav1.NamespaceAll, fields.Set{
		"involvedObject.kind": "Node", "involvedObject.name": a.node, "involvedObject.uid": a.node, "source": events.Component,
	})
}

// onPod returns the Events that "kubectl describe pod" lists.
func (a *agent) onPod(p *corev1.Pod) []corev1.Event {
	a.tb.Helper()
	return a.list(p.Namespace, fields.Set{
		"involvedObject.name": p.Name, "involvedObject.namespace": p.Namespace, "involvedObject.uid": string(p.UID), "source": events.Component,
	})
}

func (a *agent) list(namespace string, by fields.Set) []corev1.Event {
	a.tb.Helper()
	l, err := a.client.CoreV1().Events(namespace).List(context.Background(), metav1.ListOptions{FieldSelector: by.AsSelector().String()})
	if err != nil {
		a.tb.Fatal(err)
	}
	return l.Items
}

func total(list []corev1.Event) (n int) {
	for i := range list {
		n += int(list[i].Count)
	}
	return n
}

func unreported(st events.Stats, rule string) (n int) {
	for _, v := range st.Rules[rule].Unreported {
		n += int(v)
	}
	return n
}

func TestEventOnPodAndNode(t *testing.T) {
	a := newAgent(t, nil)
	p := a.pod(a.server.Namespace(t), "web-1")
	p.Labels = map[string]string{"app": "web", "tier": "front"}
	a.pods.add(p)
	before := time.Now().Add(-time.Hour)
	tr := kill(string(p.UID))
	tr.Problem.LastSeen = before
	a.report(tr)
	a.sent(1)
	onPod, onNode := a.onPod(p), a.onNode()
	if len(onPod) != 1 || len(onNode) != 1 {
		t.Fatalf("%d Events on the pod, %d on the Node", len(onPod), len(onNode))
	}
	want := fmt.Sprintf("java[7] in pod %s/web-1 container c killed", p.Namespace)
	for _, e := range []corev1.Event{onPod[0], onNode[0]} {
		if e.Reason != "OOMKilling" || e.Message != want || e.Type != "Warning" || e.Count != 1 ||
			e.FirstTimestamp.Unix() != before.Unix() || e.LastTimestamp.Unix() != before.Unix() ||
			e.Source.Component != "kernosis" || e.Source.Host != a.node || e.ReportingController != "kernosis" || e.ReportingInstance != a.node {
			t.Errorf("%+v", e)
		}
	}
	if l := onPod[0].Labels; l["app"] != "web" || l["tier"] != "front" || onPod[0].InvolvedObject.Kind != "Pod" {
		t.Errorf("%+v", onPod[0])
	}
	if onNode[0].Namespace != "default" {
		t.Errorf("the Node's Event is in namespace %s", onNode[0].Namespace)
	}
	// The series goes on in the same Events.
	for range 4 {
		a.report(kill(string(p.UID)))
	}
	a.sent(5)
	onPod, onNode = a.onPod(p), a.onNode()
	if len(onPod) != 1 || len(onNode) != 1 || onPod[0].Count != 5 || onNode[0].Count != 5 || onPod[0].LastTimestamp.Unix() < time.Now().Unix()-60 || onPod[0].FirstTimestamp.Unix() != before.Unix() {
		t.Errorf("%+v\n%+v", onPod, onNode)
	}
}

func TestConditionsOnTheNode(t *testing.T) {
	a := newAgent(t, nil)
	for i, c := range []problem.Condition{
		{Type: "KernelDeadlock", Status: problem.True, Reason: "TaskHung", Message: "postgres[811] stays"},
		{Type: "KernelDeadlock", Status: problem.True, Reason: "TaskHung", Message: "postgres[811] stays (and 1 more)"},
		{Type: "KernelDeadlock", Status: problem.False, Reason: "KernelHasNoDeadlock", Message: "no task is stuck"},
	} {
		c.LastTransition = time.Now().Add(time.Duration(i) * time.Millisecond)
		a.report(problem.Transition{Condition: &c})
	}
	a.sent(2)
	reported := map[string]string{}
	for _, e := range a.onNode() {
		reported[e.Reason+": "+e.Message] = e.Type
	}
	if len(reported) != 2 || reported["TaskHung: KernelDeadlock is now True: postgres[811] stays"] != "Warning" ||
		reported["KernelHasNoDeadlock: KernelDeadlock is now False: no task is stuck"] != "Normal" {
		t.Error(reported)
	}
}

func TestStorm(t *testing.T) {
	const kills = 5000
	for _, n := range []int{1, 300} {
		t.Run(fmt.Sprintf("%d pods", n), func(t *testing.T) {
			// The product's default times, so that the number of writes is the product's.
			a := newAgent(t, func(c *events.Config) { c.PatchEvery, c.SaveEvery = 0, 0 })
			ns := a.server.Namespace(t)
			var all []*corev1.Pod
			for i := range n {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("p", i)}}
				p.UID = types.UID(fmt.Sprintf("%s-%d", ns, i))
				a.pods.add(p)
				all = append(all, p)
			}
			for i := range kills {
				a.report(kill(string(all[i%n].UID)))
			}
			testenv.Until(t, "all is counted", time.Minute, func() bool { return a.sink.Stats().Rules["oom-kill"].Happened == kills })
			a.stop()
			st := a.sink.Stats()
			if got := total(a.onNode()); got != kills {
				t.Errorf("Events on the Node tell of %d", got)
			}
			onPods := 0
			for _, p := range all {
				onPods += total(a.onPod(p))
			}
			if onPods+unreported(st, "oom-kill") != kills || n == 1 && onPods != kills {
				t.Errorf("Events on pods tell of %d, %v not reported", onPods, st.Rules["oom-kill"].Unreported)
			}
			writes, _ := requests(st)
			t.Logf("%d kills on %d pods: %d writes (%d Events), %d reported on pods", kills, n, writes, st.Requests[events.Created], onPods)
			if writes > 90 {
				t.Errorf("%d writes", writes)
			}
		})
	}
}
