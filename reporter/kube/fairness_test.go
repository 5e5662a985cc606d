package kube_test

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/reporter/kubetest"
	"github.com/kernosis/kernosis/vmtest/await"
)

// fair gives the agents' user what the documentation says, waits until it holds, and
// returns what takes it away again.
func fair(t *testing.T, server *kubetest.Server, namespace string, user *rest.Config) (unfair func()) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	flow := server.Client().FlowcontrolV1()
	var schema *flowcontrolv1.FlowSchema
	for text := range strings.SplitSeq(text, "---\n") {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		switch o := object.(type) {
		case *flowcontrolv1.PriorityLevelConfiguration:
			_, err = flow.PriorityLevelConfigurations().Create(t.Context(), o, metav1.CreateOptions{})
		case *flowcontrolv1.FlowSchema:
			account := o.Spec.Rules[0].Subjects[0].ServiceAccount
			account.Namespace, account.Name = namespace, "default"
			schema, err = flow.FlowSchemas().Create(t.Context(), o, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if schema == nil {
		t.Fatal("the documentation has no FlowSchema")
	}
	is := func() bool { return schemaOf(t, user) == string(schema.UID) }
	await.Until(t, "the agents' priority level", 30*time.Second, is)
	return func() {
		t.Helper()
		if err := flow.FlowSchemas().Delete(t.Context(), schema.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "no priority level of the agents", 30*time.Second, func() bool { return !is() })
	}
}

// schemaOf returns the UID of the FlowSchema that a user's requests fall under.
func schemaOf(t *testing.T, user *rest.Config) string {
	t.Helper()
	client, err := rest.HTTPClientFor(user)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, user.Host+"/api/v1/nodes/none", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
}
