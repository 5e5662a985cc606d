package fleet

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/vmtest/await"
	"github.com/kernosis/kernosis/vmtest/kubetest"
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
	var levels, schemas []string
	last := "" // the UID of the last schema, which takes what no other one does
	for text := range strings.SplitSeq(text, "---\n") {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
		if err != nil {
			tb.Fatal(err)
		}
		switch o := object.(type) {
		case *flowcontrolv1.PriorityLevelConfiguration:
			levels = append(levels, o.Name)
			_, err = flow.PriorityLevelConfigurations().Create(tb.Context(), o, metav1.CreateOptions{})
		case *flowcontrolv1.FlowSchema:
			schemas = append(schemas, o.Name)
			rule := &o.Spec.Rules[0]
			account := rule.Subjects[0].ServiceAccount
			account.Namespace = namespace
			switch account.Name {
			case "kernosis-agent":
				account.Name = agentAccount
			case "kernosis-controller":
				account.Name = controllerAccount
			default:
				tb.Fatalf("FlowSchema %s is for %s", o.Name, account.Name)
			}
			if in := rule.ResourceRules[0].Namespaces; !slices.Contains(in, flowcontrolv1.NamespaceEvery) {
				rule.ResourceRules[0].Namespaces = []string{namespace}
			}
			var made *flowcontrolv1.FlowSchema
			if made, err = flow.FlowSchemas().Create(tb.Context(), o, metav1.CreateOptions{}); err == nil {
				last = string(made.UID)
			}
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	if last == "" {
		tb.Fatal("the documentation has no FlowSchema")
	}
	is := func() bool { return schemaOf(tb, user) == last }
	await.Until(tb, "the agents' priority level", time.Minute, is)
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
