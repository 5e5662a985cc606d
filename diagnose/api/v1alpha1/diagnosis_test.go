package v1alpha1_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func diagnosis(namespace, name string) *v1alpha1.Diagnosis {
	return &v1alpha1.Diagnosis{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.DiagnosisSpec{
			OperationSet: "hung-task", NodeName: "n7",
			PodReference: &v1alpha1.PodReference{Namespace: "shop", Name: "db-0"},
			Parameters:   v1alpha1.Parameters{"pid": "811"},
		},
	}
}

func TestWhatADiagnosisIsAboutDoesNotChange(t *testing.T) {
	c, namespace := newClient(t)
	for name, test := range map[string]struct {
		before, after func(*v1alpha1.DiagnosisSpec)
		refused       string // field: message
	}{
		"operationSet": {after: func(s *v1alpha1.DiagnosisSpec) { s.OperationSet = "other" }, refused: "spec.operationSet: is immutable"},
		"nodeName":     {after: func(s *v1alpha1.DiagnosisSpec) { s.NodeName = "n8" }, refused: "spec.nodeName: is immutable once it is set"},
		"nodeName taken away": {
			after:   func(s *v1alpha1.DiagnosisSpec) { s.NodeName = "" },
			refused: "spec.nodeName: is immutable once it is set",
		},
		"nodeName found": {
			before: func(s *v1alpha1.DiagnosisSpec) { s.NodeName = "" },
			after:  func(s *v1alpha1.DiagnosisSpec) { s.NodeName = "n7" },
		},
		"pod": {after: func(s *v1alpha1.DiagnosisSpec) { s.PodReference.Container = "pg" }, refused: "spec.podReference: is immutable"},
		"pod taken away": {
			after:   func(s *v1alpha1.DiagnosisSpec) { s.PodReference = nil },
			refused: "spec.podReference: is immutable",
		},
		"pod added": {
			before:  func(s *v1alpha1.DiagnosisSpec) { s.PodReference = nil },
			after:   func(s *v1alpha1.DiagnosisSpec) { s.PodReference = &v1alpha1.PodReference{Name: "a"} },
			refused: "spec.podReference: is immutable",
		},
		"parameter": {after: func(s *v1alpha1.DiagnosisSpec) { s.Parameters["pid"] = "812" }, refused: "spec.parameters: is immutable"},
		"parameters added": {
			before:  func(s *v1alpha1.DiagnosisSpec) { s.Parameters = nil },
			after:   func(s *v1alpha1.DiagnosisSpec) { s.Parameters = v1alpha1.Parameters{"a": "b"} },
			refused: "spec.parameters: is immutable",
		},
		"selector": {
			before: func(s *v1alpha1.DiagnosisSpec) {
				s.NodeName, s.PodReference, s.TargetSelector = "", nil, &v1alpha1.TargetSelector{NodeNames: []string{"n7"}}
			},
			after:   func(s *v1alpha1.DiagnosisSpec) { s.TargetSelector.NodeNames[0] = "n8" },
			refused: "spec.targetSelector: is immutable",
		},
		"cancel":   {after: func(s *v1alpha1.DiagnosisSpec) { s.Cancel = true }},
		"ttl":      {after: func(s *v1alpha1.DiagnosisSpec) { s.TTL = metav1.Duration{Duration: time.Hour} }},
		"approval": {after: func(s *v1alpha1.DiagnosisSpec) { s.Approval = &v1alpha1.Approval{PlanDigest: digest} }},
		"cancel taken back": {
			before:  func(s *v1alpha1.DiagnosisSpec) { s.Cancel = true },
			after:   func(s *v1alpha1.DiagnosisSpec) { s.Cancel = false },
			refused: "spec.cancel: can't be taken back",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dx := diagnosis(namespace, "")
			dx.GenerateName = "immutable-"
			if test.before != nil {
				test.before(&dx.Spec)
			}
			create(t.Context(), t, c, dx)
			test.after(&dx.Spec)
			err := c.Update(t.Context(), dx)
			if test.refused == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			field, message, _ := strings.Cut(test.refused, ": ")
			if err == nil || !refused(err, field, message) {
				t.Errorf("want %s, have %v", test.refused, err)
			}
		})
	}
}

const digest = "9c1e0f6d8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c3d2e1f0a9b8c7d6e5f4a3b2c1d"

func TestStatusIsWrittenApartFromSpec(t *testing.T) {
	c, namespace := newClient(t)
	dx := diagnosis(namespace, "status")
	dx.Status.Phase = v1alpha1.PhaseSucceeded
	create(t.Context(), t, c, dx)
	if dx.Status.Phase != "" {
		t.Errorf("create wrote the status: %v", dx.Status)
	}

	dx.Status.Phase = v1alpha1.PhaseRunning
	dx.Spec.Cancel = true
	if err := c.Update(t.Context(), dx); err != nil {
		t.Fatal(err)
	}
	if dx.Status.Phase != "" || dx.Generation != 2 {
		t.Errorf("update of the spec: phase %q, generation %d", dx.Status.Phase, dx.Generation)
	}

	dx.Status.Phase = v1alpha1.PhaseRunning
	dx.Spec.TTL.Duration = time.Hour
	if err := c.Status().Update(t.Context(), dx); err != nil {
		t.Fatal(err)
	}
	if dx.Status.Phase != v1alpha1.PhaseRunning || dx.Spec.TTL.Duration != v1alpha1.DefaultTTL || dx.Generation != 2 {
		t.Errorf("update of the status: phase %q, ttl %s, generation %d", dx.Status.Phase, dx.Spec.TTL.Duration, dx.Generation)
	}
}

func TestStatusIsBounded(t *testing.T) {
	c, namespace := newClient(t)
	dx := diagnosis(namespace, "bounded")
	create(t.Context(), t, c, dx)
	long := strings.Repeat("a", 2048)
	for name, test := range map[string]struct {
		status  v1alpha1.DiagnosisStatus
		refused string
	}{
		"phase":          {v1alpha1.DiagnosisStatus{Phase: "Done"}, "status.phase"},
		"verdict":        {v1alpha1.DiagnosisStatus{Verdict: &v1alpha1.Verdict{Reason: "disk stalled"}}, "status.verdict.reason"},
		"long verdict":   {v1alpha1.DiagnosisStatus{Verdict: &v1alpha1.Verdict{Reason: "A", Message: long}}, "status.verdict.message"},
		"path":           {v1alpha1.DiagnosisStatus{SucceededPath: v1alpha1.Path{1, 256}}, "status.succeededPath[1]"},
		"failed paths":   {v1alpha1.DiagnosisStatus{FailedPaths: slices.Repeat([]v1alpha1.Path{{1}}, 33)}, "status.failedPaths"},
		"count of paths": {v1alpha1.DiagnosisStatus{FailedPathCount: "many"}, "status.failedPathCount"},
		"state":          {v1alpha1.DiagnosisStatus{Results: []v1alpha1.Result{{ID: 1, State: "Done"}}}, "status.results[0].state"},
		"result twice": {v1alpha1.DiagnosisStatus{Results: []v1alpha1.Result{
			{ID: 1, State: v1alpha1.ResultFailed}, {ID: 1, State: v1alpha1.ResultSucceeded},
		}}, "status.results[1]"},
		"values of 2 KiB": {v1alpha1.DiagnosisStatus{Results: []v1alpha1.Result{{ID: 1, State: v1alpha1.ResultSucceeded, Values: map[string]string{"a": long[:2047]}}}}, ""},
		"longer values":   {v1alpha1.DiagnosisStatus{Results: []v1alpha1.Result{{ID: 1, State: v1alpha1.ResultSucceeded, Values: map[string]string{"a": long[:1024], "b": long[:1023]}}}}, "status.results[0].values"},
		"digest":          {v1alpha1.DiagnosisStatus{Artifacts: []v1alpha1.Artifact{{Name: "a.txt", ID: 1, Node: "n7", SHA256: "9c1e"}}}, "status.artifacts[0].sha256"},
		"artifact name":   {v1alpha1.DiagnosisStatus{Artifacts: []v1alpha1.Artifact{{Name: "../a", ID: 1, Node: "n7", SHA256: digest}}}, "status.artifacts[0].name"},
		"plan of nothing": {v1alpha1.DiagnosisStatus{Plan: &v1alpha1.Plan{Digest: digest, Steps: []v1alpha1.PlanStep{}}}, "status.plan.steps"},
		"no holder":       {v1alpha1.DiagnosisStatus{Checkpoint: &v1alpha1.Checkpoint{Time: metav1.NowMicro()}}, "status.checkpoint.holder"},
	} {
		t.Run(name, func(t *testing.T) {
			try := dx.DeepCopy()
			try.Status = test.status
			err := c.Status().Patch(t.Context(), try, client.MergeFrom(dx))
			switch {
			case test.refused == "" && err != nil:
				t.Error(err)
			case test.refused != "" && (err == nil || !refused(err, test.refused, "")):
				t.Errorf("want %s, have %v", test.refused, err)
			}
		})
	}
}

func TestDiagnosesAreSelectedByNode(t *testing.T) {
	c, namespace := newClient(t)
	ofNode := []client.ListOption{client.InNamespace(namespace), client.MatchingFields{"spec.nodeName": "n8"}}
	events, err := c.Watch(t.Context(), &v1alpha1.DiagnosisList{}, ofNode...)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	for _, node := range []string{"n7", "n8", "n9"} {
		dx := diagnosis(namespace, "on-"+node)
		dx.Spec.NodeName = node
		create(t.Context(), t, c, dx)
	}
	found := diagnosis(namespace, "found-later")
	found.Spec.NodeName = ""
	create(t.Context(), t, c, found)
	found.Spec.NodeName = "n8"
	if err := c.Update(t.Context(), found); err != nil {
		t.Fatal(err)
	}

	var list v1alpha1.DiagnosisList
	if err := c.List(t.Context(), &list, ofNode...); err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(list.Items))
	for i, dx := range list.Items {
		names[i] = dx.Name
	}
	if diff := cmp.Diff([]string{"found-later", "on-n8"}, names); diff != "" {
		t.Error(diff)
	}

	names = nil
	for len(names) < 2 {
		select {
		case e := <-events.ResultChan():
			if e.Type != watch.Added {
				t.Fatalf("event %s %v", e.Type, e.Object)
			}
			names = append(names, e.Object.(*v1alpha1.Diagnosis).Name)
		case <-time.After(testenv.Within(20 * time.Second)):
			t.Fatalf("watched %v", names)
		}
	}
	if diff := cmp.Diff([]string{"on-n8", "found-later"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestColumns(t *testing.T) {
	c, namespace := newClient(t)
	dx := diagnosis(namespace, "hung-task-n7-5f3c9a")
	create(t.Context(), t, c, dx)
	dx.Status = v1alpha1.DiagnosisStatus{
		Phase: v1alpha1.PhaseSucceeded, Subject: "shop/db-0", Action: "cordon (would)",
		Verdict: &v1alpha1.Verdict{Reason: "DiskStalled", Message: "nvme1n1: none done in 131 s"},
	}
	if err := c.Status().Update(t.Context(), dx); err != nil {
		t.Fatal(err)
	}
	set := &v1alpha1.OperationSet{
		ObjectMeta: metav1.ObjectMeta{Name: "columns"},
		Spec:       v1alpha1.OperationSetSpec{AdjacencyList: []v1alpha1.Node{{To: []int32{1}}, {ID: 1, Operation: "a"}}},
	}
	create(t.Context(), t, c, set)
	set.Status = v1alpha1.OperationSetStatus{
		Ready: true, PathCount: "1099511627776",
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, LastTransitionTime: metav1.Now()}},
	}
	if err := c.Status().Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"namespaces/" + namespace + "/diagnoses/" + dx.Name: "Name=hung-task-n7-5f3c9a Node=n7 Subject=shop/db-0 Verdict=DiskStalled Phase=Succeeded Action=cordon (would) Age=* " +
			"OperationSet=hung-task Message=nvme1n1: none done in 131 s",
		"operationsets/columns": "Name=columns Ready=true Paths=1099511627776 Reason=Accepted Age=*",
	} {
		if have := table(t, path); have != want {
			t.Errorf("%s\nhave %s\nwant %s", path, have, want)
		}
	}
}

// table returns what kubectl get prints for an object, with a star for its age.
func table(t *testing.T, path string) string {
	t.Helper()
	config := cluster.Server(t).Admin()
	server, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	url := config.Host + "/apis/" + v1alpha1.GroupVersion().String() + "/" + path
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	answer, err := server.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var table metav1.Table
	if err := json.NewDecoder(answer.Body).Decode(&table); err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) != 1 {
		t.Fatalf("%d rows", len(table.Rows))
	}
	var cells []string
	for i, column := range table.ColumnDefinitions {
		cell := fmt.Sprint(table.Rows[0].Cells[i])
		if column.Name == "Age" {
			cell = "*"
		}
		cells = append(cells, column.Name+"="+cell)
	}
	return strings.Join(cells, " ")
}
