package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func unfinishedName(i int, node string) string { return fmt.Sprintf("hung-task-%s-%016x", node, i) }

// unfinished returns a Diagnosis as agents write it: a third waits for a worker, a third is in the
// middle of a run with some 10 KiB of results, and a third has these and waits for a repair.
func unfinished(i int, namespace, node string) *v1alpha1.Diagnosis {
	now := metav1.NowMicro()
	d := &v1alpha1.Diagnosis{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.KindDiagnosis},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: unfinishedName(i, node),
			Labels:      map[string]string{"kernosis.io/trigger": "hung-task", "kernosis.io/source": "problem", "kernosis.io/operation-set": "hung-task", "kernosis.io/rule": "task-hung"},
			Annotations: map[string]string{"kernosis.io/subject": fmt.Sprintf("postgres[%d] on %s", i, node), "kernosis.io/episode": now.Format(time.RFC3339Nano), "kernosis.io/cause": "postgres waits for a lock in jbd2_log_wait_commit"},
		},
		Spec: v1alpha1.DiagnosisSpec{
			OperationSet: "hung-task", NodeName: node,
			Parameters: v1alpha1.Parameters{"node": node, "pid": strconv.Itoa(i), "comm": "postgres", "rule": "task-hung", "message": "postgres hangs in jbd2_log_wait_commit since 132 s"},
		},
		Status: v1alpha1.DiagnosisStatus{
			Phase: v1alpha1.PhasePending, ObservedGeneration: 1, Subject: fmt.Sprintf("postgres[%d]", i),
			Checkpoint: &v1alpha1.Checkpoint{Holder: node + "-7f5dd3c4", Time: now},
			Problem:    &v1alpha1.Problem{State: v1alpha1.ProblemLasts, Since: now},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionFalse, Reason: "Pending", ObservedGeneration: 1, LastTransitionTime: metav1.Now()}},
		},
	}
	if i%3 == 0 {
		return d
	}
	d.Status.Phase, d.Status.StartTime, d.Status.Conditions[0].Reason = v1alpha1.PhaseRunning, &now, "Running"
	text := strings.Repeat("io_schedule+0x46 folio_wait_bit_common+0x131 ", 2)
	for id := int32(1); id <= 10; id++ {
		values := map[string]v1alpha1.ResultValue{}
		for v := range 8 {
			values[fmt.Sprintf("stack%d", v)] = text
		}
		d.Status.Results = append(d.Status.Results, v1alpha1.Result{
			ID: id, Operation: "blocked-stacks", State: v1alpha1.ResultRefuted, Reason: "NoDiskStalled",
			Message: text, StartTime: &now, Duration: &metav1.Duration{Duration: time.Second}, Attempts: 1, Values: values,
		})
		d.Status.FailedPaths = append(d.Status.FailedPaths, v1alpha1.Path{1, id})
		d.Status.Artifacts = append(d.Status.Artifacts, v1alpha1.Artifact{
			Name: fmt.Sprintf("%d-stacks.txt", id), ID: id, Node: node, Size: *resource.NewQuantity(4096, resource.BinarySI),
			SHA256: v1alpha1.Digest(strings.Repeat("a", 64)),
		})
	}
	if i%3 == 2 {
		// The controller has already decided, after reading the results that the repair depends on.
		d.Status.Results[0].Truncated = true
		d.Status.Results = append(d.Status.Results, v1alpha1.Result{ID: 11, Operation: "drain", State: v1alpha1.ResultAwaitingApproval})
		d.Status.Conditions = append(d.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionRemediationAllowed, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalid,
			Message:            "plan: the results of node 1 (blocked-stacks) are too long to be shown whole",
			ObservedGeneration: 1, LastTransitionTime: metav1.Now(),
		})
	}
	return d
}

// unfinishedSet returns the OperationSet of those Diagnoses: ten operations, and a repair that depends
// on the results of the first.
func unfinishedSet() *v1alpha1.OperationSet {
	set := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: "hung-task"}}
	repair := v1alpha1.Node{ID: 11, Operation: "drain", Dependences: []int32{1}}
	set.Spec.AdjacencyList = []v1alpha1.Node{{ID: 0, To: []int32{1}}}
	for id := int32(1); id < repair.ID; id++ {
		set.Spec.AdjacencyList = append(set.Spec.AdjacencyList, v1alpha1.Node{ID: id, Operation: "blocked-stacks", To: []int32{id + 1}})
	}
	set.Spec.AdjacencyList = append(set.Spec.AdjacencyList, repair)
	return set
}

// makeUnfinished creates n Diagnoses of these nodes, and their OperationSet. The first ones of each
// node and shape are written through the API server; the others are copies written to etcd, because
// this test measures holding many Diagnoses, not creating them.
func makeUnfinished(t *testing.T, server *kubetest.Server, namespace string, nodes []string, n int) {
	t.Helper()
	api := apitest.Client(t, server.Admin())
	if err := api.Create(t.Context(), unfinishedSet()); err != nil {
		t.Fatal(err)
	}
	var first []*v1alpha1.Diagnosis
	for i := range 3 * len(nodes) {
		d := unfinished(i, namespace, nodes[i%len(nodes)])
		status := d.Status
		if err := api.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		d.Status = status
		if err := api.Status().Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		first = append(first, d)
	}
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(16)
	for i := len(first); i < n; i++ {
		g.Go(func() error {
			d := first[i%len(first)].DeepCopy()
			d.Name, d.UID, d.ResourceVersion = unfinishedName(i, d.Spec.NodeName), uuid.NewUUID(), ""
			d.APIVersion, d.Kind = v1alpha1.GroupVersion().String(), v1alpha1.KindDiagnosis
			raw, err := json.Marshal(d)
			if err != nil {
				return err
			}
			return server.EtcdPut(ctx, path.Join("/registry", v1alpha1.Group, "diagnoses", d.Namespace, d.Name), raw)
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestControllerMemory bounds the memory of the controller's process: with 10,000 unfinished
// Diagnoses, and with TEST_CASES=5 against the chart's limit with 50,000. The program is built
// without the race detector, which takes several times the memory.
func TestControllerMemory(t *testing.T) {
	testenv.OnlyInTestAll(t)
	n, bound, limit := testenv.Cases(t, 10_000), int64(256<<20), int64(0)
	if n >= 50_000 {
		bound = memoryLimit(t, "../../deploy/chart/kernosis/values.yaml")
		limit = bound
	}
	server := kubetest.New(t, kubetest.Options{})
	server.CRDs(t)
	namespace := server.Namespace(t)
	var nodes []string
	for range 10 {
		node := server.Node(t)
		k, err := lease.New(lease.Config{Client: server.Client(), Namespace: namespace, Node: node, Interval: time.Second, Duration: 10 * time.Second, StartJitter: -1})
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, node)
		go func() { _ = k.Run(t.Context()) }()
	}
	kubeconfig := server.Kubeconfig(t, server.Admin())
	measure := func(want int, env ...string) (peak int64) {
		t.Helper()
		c := newController(t, kubeconfig, namespace, limit, "--silent-after", "10m", "--alerts-listen", "", "--kube-api-qps", "1000")
		c.env = append(c.env, env...)
		began := time.Now()
		c.start(t)
		testenv.Until(t, fmt.Sprintf("the controller has looked at %d Diagnoses", want), 5*time.Minute, func() bool {
			text, err := get(t.Context(), "http://"+c.metrics+"/metrics")
			if err != nil {
				return false // it does not listen yet
			}
			m := kubetest.ParseMetrics(t, text)
			return m.Sum("kernosis_controller_diagnoses") == float64(want) && bytes.Contains(text, []byte(`workqueue_depth{controller="diagnoses"`)) && m.Sum("workqueue_depth") == 0
		})
		s, err := hostfs.New("/").ProcStatus(c.PID())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d Diagnoses: %d MiB RSS, %d MiB at most, after %s", want, s.RSS>>20, s.PeakRSS>>20, time.Since(began).Round(time.Second))
		c.Stop(syscall.SIGINT, testenv.Within(time.Minute))
		return int64(s.PeakRSS)
	}
	measure(0)
	makeUnfinished(t, server, namespace, nodes, n)
	for _, stream := range []string{"true", "false"} { // false: like API servers that return a list in one response
		if peak := measure(n, "KUBE_FEATURE_WatchListClient="+stream); peak > bound {
			t.Errorf("%d MiB with %d Diagnoses, streamed %s: want at most %d", peak>>20, n, stream, bound>>20)
		}
	}
}
