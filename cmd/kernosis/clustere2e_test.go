package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// clusterAgent is an agent of a Node, with its API server.
type clusterAgent struct {
	*agenttest.Agent

	t      testing.TB
	server *kubetest.Server
	node   string
}

func newClusterAgent(t testing.TB, server *kubetest.Server, args ...string) *clusterAgent {
	t.Helper()
	node := server.Node(t)
	p := newAgent(t, append([]string{"--kubeconfig", server.Kubeconfig(t, server.Admin()), "--node-name", node,
		"--port", "0", "--prometheus-port", "0", "--listen", "127.0.0.1:0"}, args...)...)
	p.Command = "agent"
	return &clusterAgent{Agent: p, t: t, server: server, node: node}
}

// await waits until ok returns true. On a timeout the test fails with what the API server showed
// last. An API server that is down shows nothing.
func (a *clusterAgent) await(what string, within time.Duration, ok func(ctx context.Context) (bool, string, error)) {
	a.t.Helper()
	within = testenv.Within(within)
	ctx, cancel := context.WithTimeout(a.t.Context(), within)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	last := "nothing"
	for {
		is, shown, err := ok(ctx)
		if is {
			return
		}
		if err == nil {
			last = shown
		} else if !errors.Is(err, context.DeadlineExceeded) {
			last = err.Error()
		}
		select {
		case <-ctx.Done():
			a.t.Fatalf("no %s within %v; last: %s", what, within, last)
		case <-tick.C:
		}
	}
}

func (a *clusterAgent) awaitCondition(conditionType, want string) {
	a.t.Helper()
	a.await(conditionType+" "+want, 30*time.Second, func(ctx context.Context) (bool, string, error) {
		node, err := a.server.Client().CoreV1().Nodes().Get(ctx, a.node, metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return string(c.Type) == conditionType })
		if i < 0 {
			return false, fmt.Sprint(node.Status.Conditions), nil
		}
		c := node.Status.Conditions[i]
		got := fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		return got == want, got, nil
	})
}

// events returns the Events on the node with a reason.
func (a *clusterAgent) events(ctx context.Context, reason string) ([]corev1.Event, error) {
	list, err := a.server.Client().CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + a.node + ",reason=" + reason,
	})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func (a *clusterAgent) allEvents() []corev1.Event {
	a.t.Helper()
	list, err := a.server.Client().CoreV1().Events(metav1.NamespaceAll).List(a.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + a.node})
	if err != nil {
		a.t.Fatal(err)
	}
	return list.Items
}

// awaitEvents waits until the counts of the Events on the node with a reason add up.
func (a *clusterAgent) awaitEvents(reason string, want int, within time.Duration) []corev1.Event {
	a.t.Helper()
	var list []corev1.Event
	a.await(fmt.Sprintf("%d %s", want, reason), within, func(ctx context.Context) (bool, string, error) {
		var err error
		list, err = a.events(ctx, reason)
		sum := 0
		for _, e := range list {
			sum += int(e.Count)
		}
		if sum > want {
			a.t.Fatalf("%d of %s are reported, of %d", sum, reason, want)
		}
		return sum == want, fmt.Sprintf("%d in %d Events", sum, len(list)), err
	})
	return list
}

const clusterRules = `
conditions:
  AppBroken: {healthyReason: AppIsFine, healthyMessage: the app is fine}
rules:
- {name: app-fell, events: [log], logs: [app], pattern: 'fell over', clearPattern: 'stood up', condition: AppBroken, reason: AppFellOver, message: the app fell over, severity: critical}
- {name: app-hiccup, events: [log], logs: [app], pattern: 'hiccup', reason: AppHiccup, message: the app had a hiccup, severity: warning}
`

// appLog returns the path of an application's log, and a function that appends lines.
func appLog(t testing.TB) (path string, add func(lines ...string)) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "app.log")
	add = func(lines ...string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(strings.Join(append(lines, ""), "\n")); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	add()
	return path, add
}

// TestCluster follows a fault from a line of a log to the API server and back, with a
// kill -9 of the agent in between.
func TestCluster(t *testing.T) {
	testenv.OnlyInTestAll(t)
	path, add := appLog(t)
	a := newClusterAgent(t, apiServer.Server(t), "--rules-dir", writeRules(t, clusterRules), "--log", "app=file:"+path)
	a.Start()
	a.awaitCondition("AppBroken", "False AppIsFine: the app is fine")
	a.awaitCondition("Ready", "True KubeletReady: kubelet is posting ready status")

	add("it fell over", "hiccup", "hiccup")
	a.awaitCondition("AppBroken", "True AppFellOver: the app fell over")
	e := a.awaitEvents("AppHiccup", 2, 30*time.Second)[0]
	if e.Type != corev1.EventTypeWarning || e.Source.Component != "kernosis" || e.Message != "the app had a hiccup" || len(e.Name) == 0 {
		t.Errorf("event %+v", e)
	}
	if e := a.awaitEvents("AppFellOver", 1, 30*time.Second)[0]; e.Type != corev1.EventTypeWarning {
		t.Errorf("event %+v", e)
	}
	// The API server shows a write before the agent has the answer and counts it.
	for _, line := range []string{
		`kernosis_api_writes_total{node="` + a.node + `",object="condition",outcome="written"} `,
		`kernosis_api_writes_total{node="` + a.node + `",object="event",outcome="created"} 2` + "\n",
		`kernosis_events_occurred_total{node="` + a.node + `",rule="app-hiccup"} 2`,
		`kernosis_conditions_pending{node="` + a.node + `"} 0`,
		`kernosis_condition{node="` + a.node + `",status="True",type="AppBroken"} 1`,
	} {
		testenv.UntilShown(t, fmt.Sprintf("%q in the metrics", line), 30*time.Second, func() (bool, string) {
			_, metrics := get(t, a.Log.URL(t)+"/metrics")
			return strings.Contains(metrics, "\n"+line), metrics
		})
	}

	a.await("Lease with the types", 30*time.Second, func(ctx context.Context) (bool, string, error) {
		held, err := a.server.Client().CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, lease.Name(a.node), metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		list := held.Annotations[lease.AnnotationTypes]
		types := strings.Split(list, ",")
		return slices.Contains(types, "AppBroken") && !slices.Contains(types, "Ready"), list, nil
	})

	a.Kill()
	add("it stood up", "hiccup")
	a.Start()
	a.awaitCondition("AppBroken", "False AppIsFine: the app is fine")
	a.awaitEvents("AppHiccup", 3, 30*time.Second)
	a.awaitEvents("AppFellOver", 1, 30*time.Second)
	// Neither start reports unchanged conditions.
	var reported []string
	for _, e := range a.allEvents() {
		reported = append(reported, fmt.Sprintf("%s: %s", e.Reason, e.Message))
	}
	if slices.Sort(reported); !slices.Equal(reported, []string{
		"AppFellOver: AppBroken is now True: the app fell over", "AppHiccup: the app had a hiccup", "AppIsFine: AppBroken is now False: the app is fine",
	}) {
		t.Errorf("Events: %q", reported)
	}
}

// TestClusterAwayInAStorm stops the API server for longer than the agent's longest retry interval.
// Meanwhile real OOM kills continue, and the agent is killed and restarted: each kill is reported
// once.
func TestClusterAwayInAStorm(t *testing.T) {
	testenv.OnlyInTestAll(t)
	t.Parallel() // first, because a test that waits for its turn must not hold the kernel lock
	needKernel(t)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(5*time.Minute))
	defer cancel()
	path, add := appLog(t)
	server := kubetest.New(t, kubetest.Options{}) // its own server, because the test stops it
	a := newClusterAgent(t, server, "--rules-dir", writeRules(t, clusterRules), "--log", "app=file:"+path)
	a.Start()
	a.WaitSources(0)
	oom := &inject.OOM{StateDir: t.TempDir(), Limit: 5 * time.Minute, Suffix: "-storm"}
	if err := oom.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer oom.Close()
	kills := 0
	kill := func() {
		t.Helper()
		if _, err := oom.Kill(ctx); err != nil {
			t.Fatal(err)
		}
		kills++
	}
	for range 5 {
		kill()
	}
	a.awaitCondition("AppBroken", "False AppIsFine: the app is fine")
	reported := func() int {
		t.Helper()
		n := 0
		for _, e := range journaled(t, a.Agent) {
			for _, tr := range e.Transitions {
				if p := tr.Problem; p != nil && p.Rule == "oom-kill" && strings.HasSuffix(oom.Cgroup(), strings.TrimPrefix(p.Subject, "cgroup ")) {
					n++
				}
			}
		}
		return n
	}

	server.Stop(t)
	away := time.Now()
	const outage = 40 * time.Second
	tick := time.NewTicker(outage / 240)
	defer tick.Stop()
	add("it fell over")
	// By time and not by the number of kills, because a busy machine makes fewer.
	killed, restarted := false, false
	for time.Since(away) < outage {
		switch past := time.Since(away); {
		case !killed && past > outage/6:
			a.Kill()
			killed = true
		case killed && !restarted:
			a.Start()
			restarted = true
		}
		for range 4 {
			kill()
			add("hiccup")
			<-tick.C
		}
	}
	server.Start(t)
	a.awaitCondition("AppBroken", "True AppFellOver: the app fell over")
	a.awaitEvents("AppHiccup", kills-5, time.Minute)
	// Other tests on this machine may cause kills too.
	a.await("an Event of the kills", time.Minute, func(ctx context.Context) (bool, string, error) {
		sum, subject := 0, strings.TrimPrefix(oom.Cgroup(), "/sys/fs/cgroup")
		list, err := a.events(ctx, "OOMKilling")
		for _, e := range list {
			if strings.Contains(e.Message, filepath.Base(subject)) {
				sum += int(e.Count)
			}
		}
		return sum == kills, fmt.Sprintf("%d of %d kills in %d Events", sum, kills, len(list)), err
	})
	if n := reported(); n < kills {
		t.Errorf("%d of %d kills are in the journal", n, kills)
	}
	t.Logf("%d kills, %d of them while the API server was away for %v", kills, kills-5, time.Since(away).Round(time.Second))
}
