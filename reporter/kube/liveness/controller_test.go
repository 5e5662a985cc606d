package liveness

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

const (
	silentAs = "Unknown " + lease.ReasonUnknown
	neverAs  = "Unknown " + lease.ReasonNeverUpdated
)

func TestSilentAgent(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	node := b.server.Node(t)
	b.set(node, "Other", "True", "OfAnother")
	b.control(nil)
	a := b.agent(node, cond("A", problem.True, "Broken"), cond("B", problem.False, "Fine"), cond("C", problem.Unknown, "Blind"))
	b.holds("a reporting agent is believed", 2*quiet, func() bool { return b.has(node, "A") == "True Broken" })
	before := b.get(node)
	a.set(true)
	cut := time.Now()
	b.waitHas(node, "A", silentAs)
	if took := time.Since(cut); took < quiet-2*beat {
		t.Errorf("after %s, want at least %s", took, quiet-2*beat)
	}
	b.waitHas(node, "B", silentAs)
	b.waitHas(node, "C", silentAs)
	after := b.get(node)
	for _, kept := range []string{"Ready", "MemoryPressure", "Other"} {
		if was, is := find(before.Status.Conditions, kept), find(after.Status.Conditions, kept); *was != *is {
			t.Errorf("%s was written: %+v", kept, is)
		}
	}
	l, err := b.client.CoordinationV1().Leases(b.namespace).Get(t.Context(), lease.Name(node), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	was, is := find(before.Status.Conditions, "A"), find(after.Status.Conditions, "A")
	if !strings.Contains(is.Message, l.Spec.RenewTime.UTC().Format(time.RFC3339)) || !is.LastHeartbeatTime.Equal(&was.LastHeartbeatTime) {
		t.Errorf("got %+v, last renewed %s", is, l.Spec.RenewTime)
	}
	if !is.LastTransitionTime.After(was.LastTransitionTime.Time) {
		t.Errorf("A has changed, and its time has not: %s", is.LastTransitionTime)
	}
	if was, is := find(before.Status.Conditions, "C"), find(after.Status.Conditions, "C"); !is.LastTransitionTime.Equal(&was.LastTransitionTime) {
		t.Errorf("C was Unknown, and its time has changed: %s, was %s", is.LastTransitionTime, was.LastTransitionTime)
	}
	version := after.ResourceVersion
	b.holds("it is written once", quiet, func() bool { return b.get(node).ResourceVersion == version })
}

// More often than it takes for a type to be yielded to another client, and still no contest.
func TestReturnedAgentWins(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	b.control(nil)
	a := b.agent(node, cond("A", problem.True, "Broken"))
	for range 3 {
		a.set(true)
		b.waitHas(node, "A", silentAs)
		a.set(false)
		b.waitHas(node, "A", "True Broken")
	}
	b.holds("nobody writes over it", quiet+time.Second, func() bool { return b.has(node, "A") == "True Broken" })
	if s := a.patcher.Stats(); s.Flips != 0 || s.Contested != 0 || len(s.Yielded) != 0 {
		t.Errorf("the controller's writes count as contested: %+v", s)
	}
}

// An agent that runs but does not work leaves its conditions to the controller until it works again.
func TestAgentThatDoesNotWork(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	b.control(nil)
	var stuck atomic.Bool
	a := b.agentWith(node, func() error {
		if stuck.Load() {
			return errors.New("stuck")
		}
		return nil
	}, quiet/4, cond("A", problem.True, "Broken"), cond("B", problem.False, "Fine"))
	stuck.Store(true)
	b.waitHas(node, "A", silentAs)
	if err := a.patcher.Set([]problem.Condition{cond("A", problem.False, "Fine"), cond("C", problem.True, "Broken")}); err != nil {
		t.Fatal(err)
	}
	b.waitHas(node, "C", "True Broken") // a type that the controller has not written
	b.holds("the controller's word stays", 2*quiet, func() bool { return b.has(node, "A") == silentAs && b.has(node, "B") == silentAs })
	if !a.patcher.Stats().Pending {
		t.Error("the agent believes that its conditions are written")
	}
	stuck.Store(false)
	b.waitHas(node, "A", "False Fine")
	b.waitHas(node, "B", "")
}

func TestDrainingAgentHasLonger(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	b.drainTimeout = deadline
	node := b.server.Node(t)
	b.control(nil)
	a := b.agent(node, cond("A", problem.True, "Broken"))
	a.end()
	b.holds("it is believed", 3*quiet-time.Second, func() bool { return b.has(node, "A") == "True Broken" })
	b.waitHas(node, "A", silentAs)
}

// A node that no DaemonSet wants any more keeps nothing of its agent, only conditions of others.
func TestNodeIsTakenOut(t *testing.T) {
	b := newBench(t)
	b.drainTimeout = deadline
	out, in := b.server.Node(t), b.server.Node(t)
	b.daemonSet(out, in)
	r := b.control(nil)
	a, stays := b.agent(out, cond("A", problem.True, "Broken")), b.agent(in, cond("A", problem.True, "Broken"))
	b.set(out, "Other", "True", "OfAnother")
	b.daemonSet(in)
	a.end()
	stays.end()
	b.waitHas(out, "A", "")
	b.waitHas(in, "A", silentAs)
	if got := b.has(out, "Other") + b.has(out, "Ready"); got != "True OfAnother"+"True KubeletReady" {
		t.Errorf("got %s", got)
	}
	b.waitFor("it is not silent", func() bool { return r.count(t, "kernosis_controller_nodes", "state", "silent") == 1 })
}

func TestUpgradeIsNotSeen(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	b.drainTimeout = deadline
	node := b.server.Node(t)
	r := b.control(nil)
	b.agent(node, cond("A", problem.True, "Broken"), cond("Old", problem.False, "Fine")).end()
	b.holds("it is believed", quiet+time.Second, func() bool { return b.has(node, "A") == "True Broken" })
	b.agent(node, cond("A", problem.True, "Broken"))
	b.waitHas(node, "Old", "") // retired, known from the Lease
	b.holds("it is believed", quiet+time.Second, func() bool { return b.has(node, "A") == "True Broken" })
	if n := r.count(t, "kernosis_controller_writes_total"); n != 0 {
		t.Errorf("%v writes", n)
	}
}

func TestNeverReported(t *testing.T) {
	b := newBench(t)
	mute, other, plain := b.server.Node(t), b.server.Node(t), b.server.Node(t)
	b.set(mute, "C", "False", "OfAnother")
	b.agent(other, cond("A", problem.False, "Fine"), cond("B", problem.False, "Fine"), cond("C", problem.False, "Fine"))
	b.daemonPod("mute", mute)
	b.server.Pod(t, b.namespace, "plain", plain)
	r := b.control(nil)
	began := time.Now()
	b.waitHas(mute, "A", neverAs)
	if took := time.Since(began); took < quiet {
		t.Errorf("after %s, want a grace of %s", took, quiet)
	}
	b.waitHas(mute, "B", neverAs)
	if got := b.has(mute, "C") + b.has(mute, "Ready") + b.has(plain, "A"); got != "False OfAnother"+"True KubeletReady" {
		t.Errorf("got %s", got)
	}
	// The agent comes, and does not have B.
	b.agent(mute, cond("A", problem.True, "Broken"))
	b.waitHas(mute, "A", "True Broken")
	b.waitHas(mute, "B", "")
	kubetest.AwaitSum(t, r.registry, 1, "kernosis_controller_conditions_total", "reason", removed)
}

func TestNeverReportedAndItsPodGone(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	b.daemonPod("mute", node)
	b.control(func(c *Config) { c.Types = []string{"X"} })
	b.waitHas(node, "X", neverAs)
	b.server.DeletePod(t, b.namespace, "mute")
	b.waitHas(node, "X", "")
}

func TestRestartedControllerGivesAFullPeriod(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	node := b.server.Node(t)
	first := b.control(nil)
	a := b.agent(node, cond("A", problem.True, "Broken"))
	a.kill()
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	b.holds("nobody speaks for it", quiet, func() bool { return b.has(node, "A") == "True Broken" })
	began := time.Now()
	second := b.control(nil)
	b.waitHas(node, "A", silentAs)
	if took := time.Since(began); took < quiet {
		t.Errorf("after %s, want a full period of %s", took, quiet)
	}
	if err := second.stop(); err != nil {
		t.Fatal(err)
	}
	version := b.get(node).ResourceVersion
	third := b.control(nil)
	b.waitFor("it is silent", func() bool { return third.count(t, "kernosis_controller_nodes", "state", "silent") == 1 })
	b.holds("it is not written again", time.Second, func() bool { return b.get(node).ResourceVersion == version })
}

func TestDeletedLease(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	node := b.server.Node(t)
	b.control(nil)
	a := b.agent(node, cond("A", problem.True, "Broken"))
	b.daemonPod("agent", node)
	b.holds("it is believed", 2*quiet, func() bool { return b.has(node, "A") == "True Broken" })
	a.kill()
	if err := b.client.CoordinationV1().Leases(b.namespace).Delete(t.Context(), lease.Name(node), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.waitHas(node, "A", silentAs)
}

func TestDeletedNode(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	node := b.server.Node(t)
	r := b.control(nil)
	a := b.agent(node, cond("A", problem.True, "Broken"))
	a.kill()
	if err := b.client.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.holds("nothing is written", quiet+time.Second, func() bool { return r.count(t, "kernosis_controller_writes_total") == 0 })
	// The garbage collector has not run yet: the Lease belongs to the earlier Node.
	b.server.NodeNamed(t, node)
	b.holds("the new Node is left alone", quiet+time.Second, func() bool {
		return b.has(node, "A") == "" && r.count(t, "kernosis_controller_writes_total") == 0
	})
}

func TestRefusedWritesAreTriedAgain(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	r := b.control(nil)
	answers := []int{http.StatusConflict, http.StatusInternalServerError, http.StatusInternalServerError, http.StatusTooManyRequests}
	var refused, accepted time.Time
	r.mu.Lock()
	r.harm = func(q *http.Request) *http.Response {
		if q.Method != http.MethodPatch || !strings.HasSuffix(q.URL.Path, "/status") {
			return nil
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(answers) == 0 {
			accepted = time.Now()
			return nil
		}
		refused = time.Now()
		code := answers[0]
		answers = answers[1:]
		return refusal(code)
	}
	r.mu.Unlock()
	a := b.agent(node, cond("A", problem.True, "Broken"))
	a.kill()
	b.waitHas(node, "A", silentAs)
	for outcome, want := range map[string]float64{"conflict": 1, "server_error": 2, "throttled": 1, "written": 1} {
		b.waitFor(outcome, func() bool { return r.count(t, "kernosis_controller_writes_total", "outcome", outcome) == want })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if waited := accepted.Sub(refused); waited < time.Second {
		t.Errorf("asked to wait a second, it waited %s", waited)
	}
}

// A type that a policy reserves does not keep others from becoming Unknown, and is tried once a
// minute for all nodes.
func TestOneRefusedTypeDoesNotHoldUpTheOthers(t *testing.T) {
	b := newBench(t)
	nodes := []string{b.server.Node(t), b.server.Node(t)}
	b.agent(b.server.Node(t), cond("B", problem.False, "Fine")) // otherwise all are silent
	r := b.control(nil)
	r.mu.Lock()
	r.harm = func(q *http.Request) *http.Response {
		if q.Method != http.MethodPatch || !strings.HasSuffix(q.URL.Path, "/status") {
			return nil
		}
		text, err := io.ReadAll(q.Body)
		if err != nil {
			t.Error(err)
		}
		q.Body = io.NopCloser(bytes.NewReader(text))
		if bytes.Contains(text, []byte(`"Reserved"`)) {
			return refusal(http.StatusForbidden)
		}
		return nil
	}
	r.mu.Unlock()
	for _, node := range nodes {
		b.agent(node, cond("A", problem.True, "Broken"), cond("Reserved", problem.True, "Broken"), cond("Z", problem.False, "Fine")).kill()
		b.waitHas(node, "A", silentAs)
		b.waitHas(node, "Z", silentAs)
	}
	if n := r.count(t, "kernosis_controller_writes_total", "outcome", "forbidden"); n != 2 {
		t.Errorf("%v writes were refused, want that of the first node and that of its type", n)
	}
}

// A controller without permission does not try its conditions one by one.
func TestMissingRights(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	b.agent(b.server.Node(t), cond("B", problem.False, "Fine")) // otherwise all are silent
	r := b.control(nil)
	var bodies []string
	r.mu.Lock()
	r.harm = func(q *http.Request) *http.Response {
		if q.Method != http.MethodPatch || !strings.HasSuffix(q.URL.Path, "/status") {
			return nil
		}
		text, err := io.ReadAll(q.Body)
		if err != nil {
			t.Error(err)
		}
		q.Body = io.NopCloser(bytes.NewReader(text))
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(bodies) == 4 {
			return nil
		}
		bodies = append(bodies, string(text))
		return refusal(http.StatusForbidden)
	}
	r.mu.Unlock()
	b.agent(node, cond("A", problem.True, "Broken"), cond("Z", problem.False, "Fine")).kill()
	b.waitHas(node, "A", silentAs)
	b.waitHas(node, "Z", silentAs)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, body := range bodies {
		if strings.Contains(body, `"A"`) != strings.Contains(body, `"Z"`) {
			t.Errorf("one alone was tried: %s", body)
		}
	}
}

// Changes since the Node was read are not overwritten.
func TestWriteIsForTheNodeThatWasLookedAt(t *testing.T) {
	b := newBench(t)
	node := b.server.Node(t)
	old := b.get(node)
	b.set(node, "A", "True", "JustNow")
	r := &reconciler{client: b.client, counts: newCounts()}
	if _, err := r.write(t.Context(), old, []change{{Type: "A", Status: corev1.ConditionUnknown, Reason: lease.ReasonUnknown}}); err == nil || !strings.Contains(err.Error(), "modified") {
		t.Errorf("got %v, want a conflict", err)
	}
	if got := b.has(node, "A"); got != "True JustNow" {
		t.Error(got)
	}
}
