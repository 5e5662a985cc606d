package fleet

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/deploy/chart"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// fair applies the chart's priority levels to the agents' user, waits until they are in effect, and
// returns a function that removes them.
func fair(tb testing.TB, server *kubetest.Server, namespace string, user *rest.Config) (unfair func()) {
	tb.Helper()
	account := func(name string) map[string]any {
		return map[string]any{"serviceAccount": map[string]any{"name": name}}
	}
	helm := chart.Renderer{Helm: kubetest.Helm(tb), Chart: filepath.Join(root, "deploy/chart/kernosis"), Namespace: namespace}
	documents, err := helm.Render(tb.Context(), map[string]any{
		"agent": account(agentAccount), "controller": account(controllerAccount), "flowControl": map[string]any{"enabled": true},
	})
	if err != nil {
		tb.Fatal(err)
	}
	flow := server.Client().FlowcontrolV1()
	var levels, schemas []string
	last := "" // the UID of the catch-all schema
	for _, d := range documents {
		if d.Source != "flowcontrol.yaml" {
			continue
		}
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(d.Text), nil, nil)
		if err != nil {
			tb.Fatal(err)
		}
		switch o := object.(type) {
		case *flowcontrolv1.PriorityLevelConfiguration:
			levels = append(levels, o.Name)
			_, err = flow.PriorityLevelConfigurations().Create(tb.Context(), o, metav1.CreateOptions{})
		case *flowcontrolv1.FlowSchema:
			schemas = append(schemas, o.Name)
			var made *flowcontrolv1.FlowSchema
			if made, err = flow.FlowSchemas().Create(tb.Context(), o, metav1.CreateOptions{}); err == nil && o.Name == "kernosis-agent" {
				last = string(made.UID)
			}
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	if last == "" {
		tb.Fatal("the chart has no FlowSchema of agents")
	}
	is := func() bool { return schemaOf(tb, user) == last }
	testenv.Until(tb, "the agents' priority level", time.Minute, is)
	return func() {
		tb.Helper()
		for _, name := range schemas {
			if err := flow.FlowSchemas().Delete(tb.Context(), name, metav1.DeleteOptions{}); err != nil {
				tb.Fatal(err)
			}
		}
		for _, name := range levels {
			if err := flow.PriorityLevelConfigurations().Delete(tb.Context(), name, metav1.DeleteOptions{}); err != nil {
				tb.Fatal(err)
			}
		}
		testenv.Until(tb, "no priority level of the agents", time.Minute, func() bool { return !is() })
	}
}

// schemaOf returns the UID of the FlowSchema that matches a user's requests.
func schemaOf(tb testing.TB, user *rest.Config) string {
	tb.Helper()
	client, err := rest.HTTPClientFor(user)
	if err != nil {
		tb.Fatal(err)
	}
	request, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, user.Host+"/api/v1/nodes/none", http.NoBody)
	if err != nil {
		tb.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		tb.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
}
