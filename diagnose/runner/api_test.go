package runner_test

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

var cluster kubetest.Shared

// The API server accepts the largest possible status of a run, and a usual one, without loss.
func TestTheAPIServerTakesAnyStatus(t *testing.T) {
	server := cluster.Server(t)
	server.CRDs(t)
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	transport, err := rest.HTTPClientFor(server.Admin())
	if err != nil {
		t.Fatal(err)
	}
	defer transport.CloseIdleConnections()
	c, err := client.New(server.Admin(), client.Options{Scheme: scheme, HTTPClient: transport})
	if err != nil {
		t.Fatal(err)
	}
	namespace := server.Namespace(t)
	var s script
	reports := map[string]*runner.Report{
		"largest":  largest(t),
		"observed": execute(t, newRunner(t, runner.Config{}), s.diagnosis(t, "a", hungTask()...)),
		"waits":    execute(t, newRunner(t, runner.Config{Gate: &gate{}}), s.diagnosis(t, "a", hungTask()...)),
		"failed":   execute(t, newRunner(t, runner.Config{}), s.diagnosis(t, "a", ": 1", "collect-fails:")),
	}
	for name, rep := range reports {
		d := &v1alpha1.Diagnosis{}
		d.Namespace, d.Name = namespace, name
		d.Spec.OperationSet, d.Spec.NodeName = "set", "n7"
		if err := c.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		rep.Status(&d.Status)
		want, err := json.Marshal(d.Status)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Status().Update(t.Context(), d, &client.SubResourceUpdateOptions{}); err != nil {
			t.Errorf("%s: %.2000s", name, err)
			continue
		}
		got, err := json.Marshal(d.Status)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s: the server has\n%.2000s\nnot\n%.2000s", name, got, want)
		}
		if name == "largest" && !strings.Contains(string(got), `"truncated":true`) {
			t.Error("nothing is truncated")
		}
	}
}
