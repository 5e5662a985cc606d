package chaostest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tied "github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// repairs are Diagnoses with a repair of the node, which a web server of the test simulates.
type repairs struct {
	w         *world
	client    client.Client
	namespace string
	port      int32

	mu    sync.Mutex
	calls []int // number of calls of the repair, by Diagnosis
	begun []string
}

func newRepairs(w *world, namespace string) *repairs {
	w.t.Helper()
	r := &repairs{w: w, client: apitest.Client(w.t, w.server.Admin()), namespace: namespace}
	web := httptest.NewServer(http.HandlerFunc(r.serve))
	w.t.Cleanup(web.Close)
	address, err := url.Parse(web.URL)
	w.must(err)
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	w.must(err)
	r.port = int32(port)

	look := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: "look-" + w.node}}
	look.Spec.Effect = v1alpha1.EffectCollect
	look.Spec.Processor.HTTPServer = &v1alpha1.HTTPServer{Port: r.port, Path: "/look"}
	policy := &v1alpha1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "of-" + w.node}}
	one := int32(1)
	policy.Spec.Mode, policy.Spec.Budget.MaxNodes = v1alpha1.ModeEnforce, &one
	policy.Spec.NodeSelector.MatchLabels = map[string]string{repairLabel: w.node}
	// The next repair may come soon.
	policy.Spec.CooldownPerNode, policy.Spec.VerifyWithin = &metav1.Duration{}, metav1.Duration{Duration: time.Second}
	r.create(look)
	r.create(policy)
	r.label()
	return r
}

// repairLabel is the label of a node that the policy selects.
const repairLabel = "chaos"

func (r *repairs) label() {
	r.w.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{repairLabel: r.w.node}}})
	r.w.must(err)
	_, err = r.w.server.Client().CoreV1().Nodes().Patch(r.w.t.Context(), r.w.node, types.MergePatchType, patch, metav1.PatchOptions{})
	r.w.must(err)
}

func (r *repairs) create(o client.Object) {
	r.w.t.Helper()
	if err := r.client.Create(r.w.t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
		r.w.t.Fatal(err)
	}
}

// begin creates a Diagnosis with a repair. While the API server is down it does nothing.
func (r *repairs) begin() {
	r.w.t.Helper()
	if r.w.away {
		return
	}
	r.mu.Lock()
	n := len(r.calls)
	r.calls = append(r.calls, 0)
	r.mu.Unlock()
	name := fmt.Sprintf("repair-%d-%s", n, r.w.node)
	repair := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: name}}
	repair.Spec.Effect = v1alpha1.EffectRemediate
	repair.Spec.Processor.HTTPServer = &v1alpha1.HTTPServer{Port: r.port, Path: fmt.Sprint("/", n)}
	set := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	set.Spec.AdjacencyList = []v1alpha1.Node{
		{ID: 0, To: []int32{1}}, {ID: 1, Operation: "look-" + r.w.node, To: []int32{2}}, {ID: 2, Operation: name},
	}
	d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}}
	d.Spec.OperationSet, d.Spec.NodeName = name, r.w.node
	r.create(repair)
	r.create(set)
	r.create(d)
	r.begun = append(r.begun, name)
}

// serve answers the agent's requests. A repair takes a while, so that it can be interrupted.
func (r *repairs) serve(rw http.ResponseWriter, request *http.Request) {
	defer fmt.Fprint(rw, `{}`)
	n, err := strconv.Atoi(strings.TrimPrefix(request.URL.Path, "/"))
	if err != nil {
		return // not a repair
	}
	r.mu.Lock()
	r.calls[n]++
	r.mu.Unlock()
	r.w.note("  repair %d is made", n)
	select {
	case <-time.After(300 * time.Millisecond):
	case <-request.Context().Done():
	}
}

// check waits until all Diagnoses have ended, and checks that each repair was made at most once, and only
// after a decision.
func (r *repairs) check() {
	r.w.t.Helper()
	for n, name := range r.begun {
		var d v1alpha1.Diagnosis
		r.w.await("end of "+name, func() (bool, string) {
			err := r.client.Get(r.w.t.Context(), client.ObjectKey{Namespace: r.namespace, Name: name}, &d)
			return err == nil && d.Status.Phase.Ended(), fmt.Sprintf("%s %+v %v", d.Status.Phase, d.Status.Conditions, err)
		})
		r.mu.Lock()
		calls := r.calls[n]
		r.mu.Unlock()
		allowed := len(d.Status.Remediations) == 1 && d.Status.Remediations[0].Verb == v1alpha1.RemediationRun
		i := slices.IndexFunc(d.Status.Results, func(r v1alpha1.Result) bool { return r.ID == 2 })
		made := i >= 0 && d.Status.Results[i].State == v1alpha1.ResultSucceeded
		if calls > 1 || calls == 1 && !allowed || made && calls == 0 {
			r.w.t.Errorf("%s was made %d times: %s, %+v, decisions %+v", name, calls, d.Status.Phase, d.Status.Results, d.Status.Remediations)
		}
		r.w.note("  %s: %s, made %d times; %+v", name, d.Status.Phase, calls, d.Status.Results)
	}
}

// controller is a controller that is restarted when it ends, as in a Deployment.
type controller struct {
	w    *world
	name string
	args []string
	log  agenttest.Log

	mu     sync.Mutex
	cmd    *exec.Cmd
	ending bool
	ended  chan struct{}
}

func newController(w *world, name, kubeconfig, namespace string) *controller {
	w.t.Helper()
	c := &controller{w: w, name: name, ended: make(chan struct{}), args: []string{"controller", "--kubeconfig", kubeconfig, "--namespace", namespace,
		"--metrics-listen", "", "--health-listen", ""}}
	started := make(chan struct{})
	go c.run(started)
	<-started
	w.t.Cleanup(func() {
		c.stop()
		if w.t.Failed() {
			w.t.Logf("log of %s:\n%s", c.name, c.log.String())
		}
	})
	return c
}

func (c *controller) run(started chan<- struct{}) {
	defer close(c.ended)
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for {
		c.mu.Lock()
		if c.ending {
			c.mu.Unlock()
			return
		}
		c.cmd = exec.Command(agenttest.Program(c.w.t), c.args...)
		c.cmd.Stderr = &c.log
		err := tied.StartTied(c.cmd)
		c.mu.Unlock()
		if started != nil {
			close(started)
			started = nil
		}
		if err != nil {
			c.w.t.Error(err)
			return
		}
		_ = c.cmd.Wait() // lost leadership ends it, too
		<-again.C
	}
}

// signal sends the controller a signal; between two starts it has no effect.
func (c *controller) signal(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.cmd.Process.Signal(s)
}

// stop shuts the controller down cleanly, without a restart.
func (c *controller) stop() {
	c.mu.Lock()
	c.ending = true
	c.mu.Unlock()
	c.signal(syscall.SIGTERM)
	kill := time.AfterFunc(testenv.Within(quietWithin), func() { c.signal(syscall.SIGKILL) })
	defer kill.Stop()
	<-c.ended
}

// complaint returns a line of a program's log that no harm justifies.
func complaint(log string) (line string, found bool) {
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "panic:") || strings.Contains(line, "fatal error:") || strings.Contains(line, "DATA RACE") {
			return line, true
		}
	}
	return "", false
}
