package kube_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/detector/rules"
	"github.com/kernosis/kernosis/reporter/kube/events"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/reporter/kubetest"
	"github.com/kernosis/kernosis/vmtest/await"
	"github.com/kernosis/kernosis/vmtest/testall"
)

const (
	// spread is the time over which a fleet's first writes are, by default.
	spread = 10 * time.Second
	// burst is how often a tenth of the agents see a problem, on a pod and on no pod.
	burst = 100
	// stormFor is the time over which all nodes notice the fault.
	stormFor = 8 * time.Second
	// idle is a Lease's interval, so that each agent renews once.
	idle = lease.DefaultInterval
)

func nodeName(i int) string { return fmt.Sprintf("fleet-%03d", i) }

// healthy returns the conditions that the shipped rules have, all False.
func healthy(t *testing.T) []problem.Condition {
	t.Helper()
	set, err := detector.Load(rules.FS)
	if err != nil {
		t.Fatal(err)
	}
	var out []problem.Condition
	for _, c := range set.Conditions() {
		out = append(out, problem.Condition{Type: c.Type, Status: problem.False, Reason: c.HealthyReason, Message: c.HealthyMessage, LastTransition: time.Now()})
	}
	return out
}

// TestFleet has the agents of many nodes in one process, each with its own connection
// to one API server. They start at once; then a condition changes on each within
// seconds, as of a file server that they share, while a tenth sees a burst of problems;
// then nothing happens. No request fails so far. Then conditions change on all at the
// same moment; then they end at once.
func TestFleet(t *testing.T) {
	testall.Only(t)
	server := kubetest.New(t, kubetest.Options{}) // nobody else writes
	namespace := server.Namespace(t)
	config, sent := serviceAccount(t, server, namespace), &requests{writes: map[string][]time.Time{}}
	unfair := fair(t, server, namespace, rest.CopyConfig(config))
	sent.through(config)
	current, dir := healthy(t), t.TempDir()
	fleet := make([]*agent, 0, agents)
	for _, node := range makeNodes(t, server, agents) {
		a := newAgent(t, config, node, namespace, dir, slices.Clone(current))
		defer a.journal.Close()
		fleet = append(fleet, a)
	}
	all := func(what string, within time.Duration, ok func(i int, a *agent) bool) {
		t.Helper()
		await.Until(t, what, within, func() bool {
			for i, a := range fleet {
				if !ok(i, a) {
					return false
				}
			}
			return true
		})
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started := time.Now()
	for _, a := range fleet {
		a.start(ctx)
	}
	all("every Node has its conditions, and every agent its Lease", time.Minute, func(_ int, a *agent) bool {
		return a.quiet(0) && !a.lease.Stats().LastRenewed.IsZero()
	})
	storm := time.Now()
	start := sent.between(started, storm)
	t.Logf("start of %d agents: %v; %d reads and watches", agents, start, start.reads)
	if n := start.writes; n[kindCondition] != agents || n[kindLease] < agents || n[kindEvent] != 0 {
		t.Errorf("writes of the start: %v", n)
	}
	// However slow this machine is, nothing may be early; all at once would be.
	for kind, at := range sent.writesUntil(storm) {
		for i, began := range at {
			if most := agents * (began.Sub(started).Seconds()/spread.Seconds() + 0.25); float64(i) > most {
				t.Errorf("%d %ss are written %v after the start, want at most %.0f", i+1, kind, began.Sub(started), most)
				break
			}
		}
		if peak := start.peak[kind]; peak > agents*3/4 {
			t.Errorf("%d %ss are written in a second of the start", peak, kind)
		}
	}

	changed, healthyReason := current[0], current[0].Reason
	changed.Status, changed.Reason, changed.Message = problem.True, "FleetFault", "the file server does not answer"
	changed.LastTransition = storm
	happened := func(i int) uint64 {
		if i%10 == 0 {
			return 1 + 2*burst
		}
		return 1
	}
	pace := time.NewTicker(stormFor / agents)
	defer pace.Stop()
	for i, a := range fleet {
		<-pace.C
		a.tell(problem.Transition{Condition: &changed})
		for n := uint64(1); n < happened(i); n++ {
			p := &problem.Problem{Rule: "fleet", Group: "node", Reason: "FleetNode", Message: "a problem of the node"}
			if n%2 == 0 {
				p = &problem.Problem{Rule: "fleet-pod", Group: "pod", Pod: a.pod.UID, Reason: "FleetPod", Message: "a problem of the pod"}
			}
			p.Severity, p.State, p.FirstSeen, p.LastSeen = problem.Warning, problem.Firing, storm, storm
			a.tell(problem.Transition{Problem: p})
		}
	}
	all("every Event has its count", time.Minute, func(i int, a *agent) bool { return a.quiet(happened(i)) })
	quiet := time.Now()
	stormed := sent.between(storm, quiet)
	t.Logf("storm: %v", stormed)
	if n := stormed.writes[kindCondition]; n != agents {
		t.Errorf("%d writes of conditions in the storm, want one an agent", n)
	}

	before := server.EtcdWrites(t)
	from := time.Now()
	<-time.After(idle)
	idled, after := sent.between(from, time.Now()), server.EtcdWrites(t)
	perHour := float64(after.PutBytes-before.PutBytes) / agents * time.Hour.Seconds() / idled.lasted.Seconds()
	t.Logf("idle: %v; to etcd %.0f KiB a node and hour; a heartbeat would write %d bytes", idled, perHour/1024, nodeBytes(t, server, fleet[0].node))
	if n := idled.writes; n[kindCondition]+n[kindEvent] != 0 || n[kindLease] < agents*8/10 || n[kindLease] > agents*11/10 {
		t.Errorf("writes of idle agents: %v", n)
	}

	// Where this machine does not give the server its time, requests wait for longer than
	// it lets them, which is no fault of the fleet's. Were there too many of them for the
	// queues, it would be.
	_, busy := sent.failures()
	if waited := timedOut(t, server); busy > waited || busy > agents {
		t.Errorf("%d answers are 429; %d requests had waited for too long", busy, waited)
	} else if busy > 0 {
		t.Logf("the machine is busy: %d requests waited for too long and were sent again", busy)
	}
	for _, a := range fleet {
		a.check(busy > 0)
	}

	// All at the same moment: what the API server can't do in time is answered with 429,
	// and tried again.
	atOnce := func(what string, c problem.Condition, times uint64) {
		t.Helper()
		_, before := sent.failures()
		began := time.Now()
		for _, a := range fleet {
			a.tell(problem.Transition{Condition: &c})
		}
		all("the conditions are written", time.Minute, func(_ int, a *agent) bool { _, all := a.conditions.Acked(); return all })
		written := time.Since(began)
		all("every Event has its count", 2*time.Minute, func(i int, a *agent) bool { return a.quiet(happened(i) + times) })
		_, busy := sent.failures()
		t.Logf("at once, %s: %v; all conditions after %.1f s; %d answers are 429 (%d since the start for waiting too long)",
			what, sent.between(began, time.Now()), written.Seconds(), busy-before, timedOut(t, server))
	}
	atOnce("with a priority level", current[0], 1)
	unfair()
	atOnce("without", changed, 2)

	cancel()
	for _, a := range fleet {
		a.running.Wait()
		if l := a.lease.Stats(); !l.Drained || l.Superseded {
			t.Errorf("%s: Lease: %+v", a.node, l)
		}
	}
	total := sent.between(started, time.Now())
	t.Logf("in all: %v; %d reads and watches", total, total.reads)
	failed, _ := sent.failures()
	for _, why := range failed {
		t.Errorf("request failed: %s", why)
	}
	current[0] = changed
	checkNodes(t, server, current)
	checkEvents(t, server, namespace, changed.Type, healthyReason, happened)
}

// timedOut returns how many requests the server has refused for their time in a queue.
func timedOut(t *testing.T, server *kubetest.Server) int {
	t.Helper()
	return int(server.APIMetrics(t).Sum("apiserver_flowcontrol_rejected_requests_total", "reason", "time-out"))
}

// checkNodes checks that each Node has all conditions as its agent has them, and
// kubelet's as they were.
func checkNodes(t *testing.T, server *kubetest.Server, current []problem.Condition) {
	t.Helper()
	list, err := server.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{string(corev1.NodeReady): "True KubeletReady", string(corev1.NodeMemoryPressure): "False KubeletHasSufficientMemory"}
	for _, c := range current {
		want[c.Type] = string(c.Status) + " " + c.Reason
	}
	for i := range list.Items {
		got := map[string]string{}
		for _, c := range list.Items[i].Status.Conditions {
			got[string(c.Type)] = string(c.Status) + " " + c.Reason
		}
		if !maps.Equal(got, want) {
			t.Errorf("conditions of %s: %v, want %v", list.Items[i].Name, got, want)
		}
	}
	if len(list.Items) != agents {
		t.Errorf("%d Nodes", len(list.Items))
	}
}

// checkEvents checks that the Events of each node and pod tell as often as it happened.
func checkEvents(t *testing.T, server *kubetest.Server, namespace, conditionType, healthyReason string, happened func(i int) uint64) {
	t.Helper()
	list, err := server.Client().CoreV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, want := map[string]int{}, map[string]int{}
	for i := range list.Items {
		e := &list.Items[i]
		if e.Source.Component != events.Component {
			t.Logf("the API server's own: %s %s: %s", e.InvolvedObject.Name, e.Reason, e.Message)
			continue
		}
		got[strings.Join([]string{e.Namespace, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason}, " ")] += int(e.Count)
		if e.Reason == "FleetFault" && !strings.Contains(e.Message, conditionType+" is now True") {
			t.Errorf("Event %q", e.Message)
		}
	}
	for i := range agents {
		node := nodeName(i)
		want["default Node "+node+" FleetFault"], want["default Node "+node+" "+healthyReason] = 2, 1
		if happened(i) > 1 {
			want["default Node "+node+" FleetNode"], want["default Node "+node+" FleetPod"] = burst, burst
			want[namespace+" Pod app-"+node+" FleetPod"] = burst
		}
	}
	if !maps.Equal(got, want) {
		for what, n := range want {
			if got[what] != n {
				t.Errorf("%d times %s, want %d", got[what], what, n)
			}
		}
		for what, n := range got {
			if want[what] == 0 {
				t.Errorf("%d times %s, which is not to be there", n, what)
			}
		}
	}
}

// nodeBytes returns the size of a Node as etcd has it.
func nodeBytes(t *testing.T, server *kubetest.Server, node string) int {
	t.Helper()
	raw, err := server.Client().CoreV1().RESTClient().Get().Resource("nodes").Name(node).
		SetHeader("Accept", "application/vnd.kubernetes.protobuf").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(raw)
}
