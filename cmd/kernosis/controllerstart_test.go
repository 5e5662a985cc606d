package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/controller/start"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestAlertsConfiguration(t *testing.T) {
	write := func(text string) string {
		file := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for name, c := range map[string]struct {
		args    []string
		mistake string
		check   func(start.AlertsConfig) bool
	}{
		"none": {check: func(c start.AlertsConfig) bool { return c.Listen == "" }},
		"file": {args: []string{"--config", write("alerts-listen: 127.0.0.1:20260\nalerts-plain-http: true\n")}, check: func(c start.AlertsConfig) bool {
			return c.Listen == "127.0.0.1:20260" && c.Plain && c.Audience == "kernosis"
		}},
		"certificates": {
			args:  []string{"--alerts-listen", ":1", "--alerts-cert-file", "c", "--alerts-key-file", "k", "--alerts-client-ca-file", "ca", "--alerts-client-names", "a,b"},
			check: func(c start.AlertsConfig) bool { return len(c.ClientNames) == 2 && c.ClientCAFile == "ca" },
		},
		"without TLS":    {args: []string{"--alerts-listen", ":1", "--alerts-plain-http"}, mistake: "alerts-plain-http: alerts-listen :1: want a loopback address"},
		"no certificate": {args: []string{"--alerts-listen", ":1"}, mistake: "alerts-listen: requires alerts-cert-file"},
		"no address":     {args: []string{"--alerts-cert-file", "c"}, mistake: "--alerts-cert-file: requires alerts-listen"},
		"key in a file":  {args: []string{"--alerts-listen", ":1", "--config", write("repairs: false\nalerts-key-file: k\n")}, mistake: "c.yaml:2: alerts-key-file: set both alerts-cert-file and alerts-key-file, or neither"},
		"file's address": {args: []string{"--config", write("alerts-plain-http: true\nalerts-listen: ':1'\n")}, mistake: "c.yaml:1: alerts-plain-http: alerts-listen :1: want a loopback"},
		"unused in file": {args: []string{"--config", write("\nalerts-client-names: [a]\n")}, mistake: "c.yaml:2: alerts-client-names: requires alerts-listen"},
		"no audience":    {args: []string{"--alerts-listen", "127.0.0.1:1", "--alerts-plain-http", "--alerts-audience", ""}, mistake: "alerts-audience: must not be empty"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := newController()
			if err := cmd.ParseFlags(c.args); err != nil {
				t.Fatal(err)
			}
			cfg, err := loadController(cmd)
			switch {
			case c.mistake == "" && (err != nil || !c.check(cfg.Alerts)):
				t.Errorf("got %+v, %v", cfg.Alerts, err)
			case c.mistake != "" && (err == nil || !strings.Contains(err.Error(), c.mistake)):
				t.Errorf("got %v, want %q", err, c.mistake)
			}
		})
	}
}

// The process receives alerts at the configured address, and creates Diagnoses from them.
func TestControllerTakesAlerts(t *testing.T) {
	server := apiServer.Server(t)
	server.CRDs(t)
	namespace, node := server.Namespace(t), server.Node(t)
	objects := apitest.Client(t, server.Admin())
	trigger := &v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: v1alpha1.TriggerSpec{
		OperationSet: "s", SourceTemplate: v1alpha1.SourceTemplate{PrometheusAlertTemplate: &v1alpha1.PrometheusAlertTemplate{
			Regexp: v1alpha1.PrometheusAlertTemplateRegexp{AlertName: "^A$"}, NodeNameReferenceLabel: "node",
		}},
	}}
	if err := objects.Create(t.Context(), trigger); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = objects.Delete(context.WithoutCancel(t.Context()), trigger) })
	server.ServiceAccount(t, namespace, "sender")
	rbac := server.Client().RbacV1()
	meta := metav1.ObjectMeta{Name: namespace}
	if _, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/api/v2/alerts"}, Verbs: []string{"post"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: namespace},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "sender"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	address := kubetest.FreeAddress(t)
	t.Setenv("KERNOSIS_ALERTS_LISTEN", address)
	t.Setenv("KERNOSIS_ALERTS_PLAIN_HTTP", "true")
	t.Setenv("KERNOSIS_ALERTS_AUDIENCE", "pager")
	p := startController(t, server.Kubeconfig(t, server.Admin()), namespace)
	post := func(audience string) (code int, answer string) {
		text := fmt.Sprintf(`[{"labels":{"alertname":"A","node":%q}}]`, node)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/api/v2/alerts", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+server.Token(t, kubetest.TokenFor{Namespace: namespace, ServiceAccount: "sender", Audience: audience}))
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err.Error() // it does not listen yet
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(raw)
	}
	var code int
	var answer string
	testenv.UntilShown(t, "it leads, and the API server has seen the role", time.Minute, func() (bool, string) {
		code, answer = post("pager")
		return code != 0 && code != http.StatusServiceUnavailable && code != http.StatusForbidden, answer
	})
	if code != http.StatusOK || !strings.Contains(answer, `"received":1`) {
		t.Fatalf("%d %s", code, answer)
	}
	var list v1alpha1.DiagnosisList
	if err := objects.List(t.Context(), &list, client.InNamespace(namespace)); err != nil || len(list.Items) != 1 || list.Items[0].Spec.NodeName != node {
		t.Fatalf("%+v, %v", list.Items, err)
	}
	d := &list.Items[0]
	if err := objects.Status().Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(`{"status":{"verdict":{"reason":"LockHeld"}}}`))); err != nil {
		t.Error(err)
	}
	testenv.UntilShown(t, "the page of nodes has it", time.Minute, func() (bool, string) {
		_, page := getIfUp(t, "http://"+p.metrics+"/state")
		return strings.Contains(page, "1 running") && strings.Contains(page, "LockHeld") && strings.Contains(page, d.Name), page
	})
	if code, answer := post("kernosis"); code != http.StatusUnauthorized {
		t.Errorf("%d %s", code, answer)
	}
	m := awaitMetrics(t, "http://"+p.metrics+"/metrics", "kernosis_alerts_received_total", "kernosis_trigger_ready", "kernosis_triggers")
	if !strings.Contains(m, "\nkernosis_trigger_ready 1") {
		t.Errorf("metrics:\n%s", m)
	}
}
