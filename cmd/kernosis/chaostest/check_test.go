package chaostest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// quietWithin is how soon everything has to be right after the last harm: the longest retry interval is
// 30 s.
const quietWithin = time.Minute

// quiet heals all harms and waits until the condition is right.
func (w *world) quiet() {
	w.t.Helper()
	w.healAll()
	w.restate()
	w.checked("the condition is right after a quiet phase")
	w.await("condition", func() (bool, string) {
		want := corev1.ConditionFalse
		if w.broken {
			want = corev1.ConditionTrue
		}
		got, err := w.condition(appBroken)
		return err == nil && got == want, fmt.Sprintf("AppBroken %s, want %s, %v", got, want, err)
	})
}

// check heals all harms, and compares the API server's objects with what has happened.
func (w *world) check() {
	w.t.Helper()
	w.note("quiet")
	w.healAll()
	if w.agent.Path == w.earlier {
		w.restart(w.otherVersion)
	}
	w.quiet()
	for range 10 { // by one process of the agent
		w.kill()
	}
	w.hiccups(1)
	w.checked("Events count the log's lines")
	w.await("Events of the log's lines", func() (bool, string) { return w.reported("AppHiccup", "", w.lineBounds) })
	group := filepath.Base(w.oom.Cgroup())
	w.checked("Events count the victims")
	w.await("Events of the kills", func() (bool, string) { return w.reported("OOMKilling", group, w.killBounds) })
	w.checkOccurrences()
	// What was right has to stay right.
	if ok, shown := w.reported("AppHiccup", "", w.lineBounds); !ok {
		w.t.Errorf("lines: %s", shown)
	}
	if ok, shown := w.reported("OOMKilling", group, w.killBounds); !ok {
		w.t.Errorf("kills: %s", shown)
	}
	w.repairs.check()
	w.checkWitness()
	w.checked("the agent is healthy")
	w.await("health", func() (bool, string) {
		text, err := w.get(w.t.Context(), "/healthz")
		return err == nil, fmt.Sprint(text, err)
	})
	w.note("end")
	w.sample()
	w.agent.Signal(syscall.SIGTERM)
	w.alive = false
	w.ended()
	w.checkJournal()
	w.uninstall()
}

// checked counts a check of an invariant.
func (w *world) checked(invariant string) { w.sum.check(invariant) }

func (w *world) await(what string, ok func() (bool, string)) {
	w.t.Helper()
	began := time.Now()
	testenv.UntilShown(w.t, what, quietWithin, ok)
	if took := time.Since(began); took > time.Second {
		w.note("  %s: after %v", what, took)
	}
}

func (w *world) condition(kind string) (corev1.ConditionStatus, error) {
	node, err := w.server.Client().CoreV1().Nodes().Get(w.t.Context(), w.node, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	for _, c := range node.Status.Conditions {
		if string(c.Type) == kind {
			return c.Status, nil
		}
	}
	return "none", nil
}

// reported compares what has happened with the counts of the Node's Events that have a reason, and a text in
// their message. Too many Events fail the test at once.
func (w *world) reported(reason, text string, bounds func() bounds) (ok bool, shown string) {
	w.t.Helper()
	w.sample()
	list, err := w.server.Client().CoreV1().Events(metav1.NamespaceDefault).List(w.t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + w.node + ",reason=" + reason,
	})
	if err != nil {
		return false, err.Error()
	}
	sum := 0
	for _, e := range list.Items {
		if strings.Contains(e.Message, text) {
			sum += int(e.Count)
		}
	}
	want := bounds()
	if sum > want.most {
		w.t.Fatalf("%d of %s are reported, of %s", sum, reason, want)
	}
	return sum >= want.least, fmt.Sprintf("%d in %d Events, want %s", sum, len(list.Items), want)
}

// get requests a page from the agent, which has to answer with 200.
func (w *world) get(ctx context.Context, page string) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+page, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", page, answer.Status, all)
	}
	return string(all), err
}

// metric returns the sum of a metric of the agent.
func (w *world) metric(name string) (sum float64, err error) {
	all, err := w.metrics(w.t.Context())
	if err != nil {
		return 0, err
	}
	if _, found := all[name]; !found {
		return 0, fmt.Errorf("no metric %s", name)
	}
	return all.Sum(name), nil
}

func (w *world) metrics(ctx context.Context) (kubetest.Metrics, error) {
	text, err := w.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	return kubetest.ParseMetrics(w.t, []byte(text)), nil
}

// ended waits for the end of the agent, which got SIGTERM.
func (w *world) ended() {
	w.t.Helper()
	kill := time.AfterFunc(testenv.Within(quietWithin), func() { w.agent.Signal(syscall.SIGABRT) })
	defer kill.Stop()
	if err := w.agent.End(); err != nil {
		w.t.Errorf("the agent ended with %v", err)
	}
	logs := map[string]*agenttest.Log{"agent": &w.agent.Log}
	for _, c := range w.controllers {
		logs[c.name] = &c.log
	}
	for name, log := range logs {
		if line, found := complaint(log.String()); found {
			w.t.Errorf("the %s's log has %s", name, line)
		}
	}
}
