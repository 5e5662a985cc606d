package main

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

// fair gives the agents' user what a page of the documentation says, waits until it holds, and
// returns what takes it away again.
func fair(tb testing.TB, server *kubetest.Server, page, namespace string, user *rest.Config) (unfair func()) {
	tb.Helper()
	doc, err := os.ReadFile(page)
	if err != nil {
		tb.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	flow := server.Client().FlowcontrolV1()
	var schema *flowcontrolv1.FlowSchema
	var level string
	for text := range strings.SplitSeq(text, "---\n") {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
		if err != nil {
			tb.Fatal(err)
		}
		switch o := object.(type) {
		case *flowcontrolv1.PriorityLevelConfiguration:
			level = o.Name
			_, err = flow.PriorityLevelConfigurations().Create(tb.Context(), o, metav1.CreateOptions{})
		case *flowcontrolv1.FlowSchema:
			account := o.Spec.Rules[0].Subjects[0].ServiceAccount
			account.Namespace, account.Name = namespace, agentAccount
			schema, err = flow.FlowSchemas().Create(tb.Context(), o, metav1.CreateOptions{})
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	if schema == nil {
		tb.Fatal("the documentation has no FlowSchema")
	}
	is := func() bool { return schemaOf(tb, user) == string(schema.UID) }
	await.Until(tb, "the agents' priority level", time.Minute, is)
	return func() {
		tb.Helper()
		if err := flow.FlowSchemas().Delete(tb.Context(), schema.Name, metav1.DeleteOptions{}); err != nil {
			tb.Fatal(err)
		}
		if err := flow.PriorityLevelConfigurations().Delete(tb.Context(), level, metav1.DeleteOptions{}); err != nil {
			tb.Fatal(err)
		}
		await.Until(tb, "no priority level of the agents", time.Minute, func() bool { return !is() })
	}
}

// schemaOf returns the UID of the FlowSchema that a user's requests fall under.
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
