package clustertest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// oom returns a cgroup in which to OOM-kill processes; ofIt reports whether a Diagnosis is of it.
func oom(t *testing.T) (o *inject.OOM, ofIt func(*v1alpha1.Diagnosis) bool) {
	t.Helper()
	o = &inject.OOM{StateDir: t.TempDir()}
	if err := o.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	// The machine may have other kills.
	return o, func(d *v1alpha1.Diagnosis) bool {
		return d.Labels[v1alpha1.LabelTrigger] == "oom-kill" && strings.HasSuffix(o.Cgroup(), "/"+filepath.Base(d.Spec.Parameters["cgroup"]))
	}
}

// within is how soon after a fault its cause must be known.
const within = 5 * time.Second

func TestAnOOMKillLeadsToItsCause(t *testing.T) {
	testenv.OnlyInTestAll(t)
	a := newAgent(t, cluster.Server(t))
	a.shipped("oom-kill")
	a.Start()
	a.WaitSources(0)
	a.knows("oom-kill")
	o, ofIt := oom(t)
	fault := time.Now()
	if _, err := o.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := a.awaitEnd(time.Minute, ofIt)
	took := time.Since(fault)
	t.Logf("known %s after the fault: %s", took.Round(time.Millisecond), d.Status.Verdict)
	if took > testenv.Within(within) {
		t.Errorf("the API has it %s after the fault", took)
	}
	if d.Spec.NodeName != a.node || d.Spec.OperationSet != "oom-kill" || d.Status.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("%+v", d)
	}
	if d.Status.Verdict == nil || d.Status.Verdict.Reason != "LimitTooLow" || len(d.Status.SucceededPath) == 0 {
		t.Errorf("verdict %v, path %v", d.Status.Verdict, d.Status.SucceededPath)
	}
	if i := slices.IndexFunc(d.Status.Artifacts, func(f v1alpha1.Artifact) bool { return f.Node == a.node }); i < 0 {
		t.Errorf("artifacts %v", d.Status.Artifacts)
	}

	// The next kill of the same cgroup is within the Trigger's cooldown, which survives the
	// agent's restart.
	if _, err := o.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.Kill()
	n := len(a.Entries())
	a.Start()
	a.WaitSources(n)
	if _, err := o.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := a.awaitEnd(time.Minute, ofIt)
	if again.UID != d.UID {
		t.Errorf("another was made: %s", again.Name)
	}
	a.Stop()
}

// An agent keeps the capabilities that scripts need: they run as another user, and it can kill them.
func TestAScriptOfAnAgent(t *testing.T) {
	testenv.OnlyInTestAll(t)
	a := newAgent(t, cluster.Server(t))
	a.Args = append(a.Args, "--diagnose-scripts")
	a.Start()
	a.WaitSources(0)
	seconds := strconv.Itoa(1_000_000 + os.Getpid())
	set := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: "script-of-" + a.node}}
	set.Spec.AdjacencyList = []v1alpha1.Node{{ID: 0, To: []int32{1}}, {ID: 1, Operation: set.Name}}
	script := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: set.Name}, Spec: v1alpha1.OperationSpec{Effect: v1alpha1.EffectCollect}}
	script.Spec.Processor.TimeoutSeconds = 2
	script.Spec.Processor.ScriptRunner = &v1alpha1.ScriptRunner{
		OperationResultKey: "x", Script: `while read key uid rest; do [ $key != Uid: ] || echo $uid; done </proc/self/status; sleep ` + seconds,
	}
	d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "script"}}
	d.Spec.OperationSet, d.Spec.NodeName = set.Name, a.node
	a.apply(set, script, d)
	d = a.awaitEnd(time.Minute, named("script"))
	if r := d.Status.Results; len(r) != 1 || r[0].Values["operation.x.output"] != "65534\n" || !strings.Contains(r[0].Values["operation.x.error"], "was killed: it exceeded its timeout") {
		t.Errorf("results %+v", r)
	}
	pids, err := hostfs.New("").PIDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && string(line) == "sleep\x00"+seconds+"\x00" {
			t.Errorf("process %d of the script is left", pid)
		}
	}
	a.Stop()
}

func TestADiagnosisOfAPerson(t *testing.T) {
	testenv.OnlyInTestAll(t)
	a := newAgent(t, cluster.Server(t))
	a.Start()
	a.WaitSources(0)
	// Applied like one file: none waits for another.
	set := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: "facts-of-" + a.node}}
	set.Spec.AdjacencyList = []v1alpha1.Node{{ID: 0, To: []int32{1}}, {ID: 1, Operation: "facts-of-" + a.node}}
	facts := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: "facts-of-" + a.node}}
	facts.Spec.Processor.Builtin = &v1alpha1.Builtin{Name: "kernel-facts"}
	by := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "by-hand"}}
	by.Spec.OperationSet, by.Spec.NodeName = set.Name, a.node
	a.apply(set, facts, by)
	d := a.awaitEnd(time.Minute, named("by-hand"))
	if d.Status.Phase != v1alpha1.PhaseSucceeded || !slices.Equal(d.Status.SucceededPath, v1alpha1.Path{1}) || d.Status.ObservedGeneration != d.Generation {
		t.Errorf("status %+v", d.Status)
	}
	if len(d.Status.Results) != 1 || d.Status.Results[0].State != v1alpha1.ResultSucceeded || len(d.Status.Results[0].Values) == 0 {
		t.Errorf("results %+v", d.Status.Results)
	}

	t.Run("of a set that is not there", func(t *testing.T) {
		wrong := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "wrong"}}
		wrong.Spec.OperationSet, wrong.Spec.NodeName = "there-is-none", a.node
		a.apply(wrong)
		d := a.awaitEnd(time.Minute, named("wrong"))
		if d.Status.Phase != v1alpha1.PhaseFailed || d.Status.Conditions[0].Reason != v1alpha1.ReasonOperationSetNotFound {
			t.Errorf("status %+v", d.Status)
		}
	})
	a.Stop()
}

// While the API server is down a fault is diagnosed, and reported when the server is back.
func TestTheServerIsAwayDuringTheFault(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := kubetest.New(t, kubetest.Options{}) // its own server, because the test stops it
	a := newAgent(t, server)
	a.shipped("oom-kill")
	a.Start()
	a.WaitSources(0)
	a.knows("oom-kill")
	o, ofIt := oom(t)

	server.Stop(t)
	// Triggers and what they need are also known after a start without the API server.
	a.Kill()
	n := len(a.Entries())
	a.Start()
	a.WaitSources(n)
	if _, err := o.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkpoints := worker.Checkpoints(filepath.Join(a.State, "diagnose"))
	a.await("end of the run", time.Minute, func(context.Context) (bool, string, error) {
		list, err := endedIn(checkpoints)
		return len(list) > 0, fmt.Sprint(list), err
	})
	ended := time.Now()
	server.Start(t)
	d := a.awaitEnd(2*time.Minute, ofIt)
	if d.Status.Phase != v1alpha1.PhaseSucceeded || d.Status.Verdict == nil || d.Status.CompletionTime == nil || d.Status.CompletionTime.After(ended) {
		t.Errorf("status %+v", d.Status)
	}
	t.Logf("reported %s after its end", time.Since(d.Status.CompletionTime.Time).Round(time.Millisecond))
	// Requests that the server refused before it had read its roles are retried.
	a.await("conditions", time.Minute, func(context.Context) (bool, string, error) {
		return !lacksRight(a.Log.String()), "a right is missing", nil
	})
	a.Stop()
}

// The agent is killed while an operation runs: the next agent continues after the operations that
// have ended, there is one Diagnosis, and it has each result once.
func TestKillDuringAnOperation(t *testing.T) {
	testenv.OnlyInTestAll(t)
	a := newAgent(t, cluster.Server(t))
	calls := make(chan string, 10)
	let := make(chan struct{})
	first := make(chan struct{}, 1)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		calls <- r.URL.Path
		if r.URL.Path == "/slow" {
			select {
			case first <- struct{}{}: // the first call hangs until its caller is killed
				<-r.Context().Done()
				return
			case <-let:
			}
		}
		fmt.Fprintf(w, `{"seen": %q}`, r.URL.Path)
	}))
	t.Cleanup(web.Close)
	port := portOf(t, web)
	server := func(name, path string) *v1alpha1.Operation {
		o := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + a.node}}
		o.Spec.Effect = v1alpha1.EffectCollect
		o.Spec.Processor.HTTPServer = &v1alpha1.HTTPServer{Port: port, Path: path}
		return o
	}
	set := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: "killed-" + a.node}}
	set.Spec.AdjacencyList = []v1alpha1.Node{
		{ID: 0, To: []int32{1}}, {ID: 1, Operation: "quick-" + a.node, To: []int32{2}},
		{ID: 2, Operation: "slow-" + a.node, To: []int32{3}}, {ID: 3, Operation: "last-" + a.node},
	}
	a.apply(server("quick", "/quick"), server("slow", "/slow"), server("last", "/last"), set)
	by := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "killed"}}
	by.Spec.OperationSet, by.Spec.NodeName = set.Name, a.node
	a.apply(by)
	a.Start()
	called := func(want ...string) {
		t.Helper()
		for _, w := range want {
			select {
			case got := <-calls:
				if got != w {
					t.Fatalf("%s is called, want %s", got, w)
				}
			case <-time.After(testenv.Within(time.Minute)):
				t.Fatalf("%s is not called", w)
			}
		}
	}
	called("/quick", "/slow")
	a.Kill()
	close(let)
	a.Start()
	called("/slow", "/last")
	d := a.awaitEnd(time.Minute, named("killed"))
	if d.Status.Phase != v1alpha1.PhaseSucceeded || !slices.Equal(d.Status.SucceededPath, v1alpha1.Path{1, 2, 3}) {
		t.Errorf("status %+v", d.Status)
	}
	if len(d.Status.Results) != 3 {
		t.Errorf("results %+v", d.Status.Results)
	}
	for _, r := range d.Status.Results {
		if r.State != v1alpha1.ResultSucceeded || r.Values["seen"] == "" {
			t.Errorf("result %+v", r)
		}
	}
	all, err := a.diagnoses(t.Context(), func(*v1alpha1.Diagnosis) bool { return true })
	if err != nil || len(all) != 1 {
		t.Errorf("%d Diagnoses, %v", len(all), err)
	}
	if len(calls) > 0 {
		t.Errorf("%s is called again", <-calls)
	}
	a.Stop()
}

// Two agents on one node, as while one takes over from the other: only one runs the Diagnosis.
func TestTwoAgentsOfOneNode(t *testing.T) {
	testenv.OnlyInTestAll(t)
	a := newAgent(t, cluster.Server(t))
	b := a.another()
	var calls atomic.Int32
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		fmt.Fprint(w, `{"seen": "yes"}`)
	}))
	t.Cleanup(web.Close)
	op := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: "two-" + a.node}}
	op.Spec.Effect = v1alpha1.EffectCollect
	op.Spec.Processor.HTTPServer = &v1alpha1.HTTPServer{Port: portOf(t, web)}
	set := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: op.Name}}
	set.Spec.AdjacencyList = []v1alpha1.Node{{ID: 0, To: []int32{1}}, {ID: 1, Operation: op.Name}}
	a.apply(op, set)
	a.Start()
	b.Start()
	a.WaitSources(0)
	b.In(t)
	b.WaitSources(0)
	const n = 20
	for i := range n {
		d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: fmt.Sprintf("two-%02d", i)}}
		d.Spec.OperationSet, d.Spec.NodeName = set.Name, a.node
		a.apply(d)
	}
	holders := map[string]int{}
	for i := range n {
		d := a.awaitEnd(time.Minute, named(fmt.Sprintf("two-%02d", i)))
		if d.Status.Phase != v1alpha1.PhaseSucceeded || d.Status.Checkpoint == nil {
			t.Fatalf("status %+v", d.Status)
		}
		holders[d.Status.Checkpoint.Holder]++
	}
	t.Logf("run by %v", holders)
	if c := calls.Load(); c != n {
		t.Errorf("%d operations ran in %d Diagnoses", c, n)
	}
	a.Stop()
	b.Stop()
}

func portOf(t *testing.T, s *httptest.Server) int32 {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return int32(port)
}

// endedIn returns the runs of a folder of checkpoints that have ended.
func endedIn(dir string) (ended []string, err error) {
	ids, err := runner.SavedIDs(dir)
	for _, id := range ids {
		if s, err := runner.ReadSaved(dir, id); err == nil && s.Report.Phase.Ended() {
			ended = append(ended, id)
		}
	}
	return ended, err
}
