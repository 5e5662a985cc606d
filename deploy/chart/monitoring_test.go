package chart_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kernosis/kernosis/deploy/monitoring"
)

// Prometheus Operator gets all alerts and Grafana all dashboards, with the URL of the
// documentation.
func TestMonitoring(t *testing.T) {
	all := rendered(t, parse(t, `
monitoring:
  rules: {enabled: true, runbookBaseURL: "https://wiki.example.com/k/", labels: {release: prometheus}}
  dashboards: {enabled: true, namespace: monitoring}
  serviceMonitor: {enabled: true, interval: 15s}
`))
	rule := object(all, "PrometheusRule", "kernosis")
	if rule == nil || rule.GetLabels()["release"] != "prometheus" {
		t.Fatalf("no rule, or without its label: %v", rule)
	}
	if want := alertsWith(t, "https://wiki.example.com/k/", ""); !reflect.DeepEqual(rule.Object["spec"], any(want)) {
		t.Errorf("the rule is not what deploy/monitoring has: %v", rule)
	}

	boards, err := filepath.Glob("kernosis/files/dashboards/*.json")
	if err != nil || len(boards) < 5 {
		t.Fatalf("%d dashboards: %v", len(boards), err)
	}
	for _, file := range boards {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		o := object(all, "ConfigMap", "kernosis-dashboard-"+name)
		if o == nil {
			t.Errorf("no ConfigMap of %s", name)
			continue
		}
		data, _, _ := unstructured.NestedStringMap(o.Object, "data")
		want := strings.ReplaceAll(string(text), monitoring.Docs, "https://wiki.example.com/k/")
		if got := data["kernosis-"+name+".json"]; got != want || !strings.Contains(got, "wiki.example.com") || !json.Valid([]byte(got)) || o.GetNamespace() != "monitoring" || o.GetLabels()["grafana_dashboard"] != "1" {
			t.Errorf("%s is not the dashboard: %v", name, o.GetLabels())
		}
	}

	// Scraped ports exist: monitor → Service → port of the pod.
	pods := podsOf(t, all)
	for _, name := range []string{"kernosis-agent", "kernosis-controller"} {
		monitor, service := object(all, "ServiceMonitor", name), object(all, "Service", name)
		if monitor == nil || service == nil {
			t.Errorf("%s is not scraped", name)
			continue
		}
		selector, _, _ := unstructured.NestedStringMap(service.Object, "spec", "selector")
		for k, v := range selector {
			if pods[name].Labels[k] != v {
				t.Errorf("%s: the Service selects %s=%s", name, k, v)
			}
		}
		port, found := pods[name].Spec.Containers[0].Ports[0], false
		list, _, _ := unstructured.NestedSlice(service.Object, "spec", "ports")
		for _, p := range list {
			m := p.(map[string]any)
			found = found || m["targetPort"] == port.Name && m["name"] == "metrics"
		}
		if !found || port.Name != "metrics" {
			t.Errorf("%s: ports %v of the Service, %v of the pod", name, list, port)
		}
	}
}

// The interval, the labels and the relabeling of scrapes can be configured.
func TestScrapeOptions(t *testing.T) {
	for value, c := range map[string]struct{ kind, list string }{"podMonitor": {"PodMonitor", "podMetricsEndpoints"}, "serviceMonitor": {"ServiceMonitor", "endpoints"}} {
		all := rendered(t, parse(t, `
monitoring:
  `+value+`:
    enabled: true
    labels: {release: prometheus}
    interval: 30s
    scrapeTimeout: 10s
    relabelings: [{targetLabel: cluster, replacement: prod}]
    metricRelabelings: [{sourceLabels: [__name__], regex: go_.*, action: drop}]
`))
		for _, name := range []string{"kernosis-agent", "kernosis-controller"} {
			monitor := object(all, c.kind, name)
			endpoints, _, _ := unstructured.NestedSlice(monitor.Object, "spec", c.list)
			e := endpoints[0].(map[string]any)
			node := map[string]any{"sourceLabels": []any{"__meta_kubernetes_pod_node_name"}, "targetLabel": "node"}
			for field, want := range map[string]any{
				"interval": "30s", "scrapeTimeout": "10s", "honorLabels": true,
				"relabelings":       []any{node, map[string]any{"targetLabel": "cluster", "replacement": "prod"}},
				"metricRelabelings": []any{map[string]any{"sourceLabels": []any{"__name__"}, "regex": "go_.*", "action": "drop"}},
			} {
				if !reflect.DeepEqual(e[field], want) {
					t.Errorf("%s %s: %s is %v, want %v", c.kind, name, field, e[field], want)
				}
			}
			if monitor.GetLabels()["release"] != "prometheus" {
				t.Errorf("%s %s: labels %v", c.kind, name, monitor.GetLabels())
			}
		}
	}
}

// Prometheus authenticates with a token that allows only metrics, over TLS; only an explicit
// setting serves metrics to everybody.
func TestWhoScrapes(t *testing.T) {
	for name, values := range map[string]string{
		"podMonitor":     `monitoring: {podMonitor: {enabled: true}}`,
		"serviceMonitor": `monitoring: {serviceMonitor: {enabled: true}}`,
		"certificate":    `{monitoring: {podMonitor: {enabled: true}}, metrics: {certificateSecret: metrics-tls}}`,
		"plain":          `{monitoring: {podMonitor: {enabled: true}}, metrics: {plainHTTP: true}}`,
	} {
		t.Run(name, func(t *testing.T) {
			all := rendered(t, parse(t, values))
			plain := name == "plain"
			for _, component := range []string{"kernosis-agent", "kernosis-controller"} {
				kind, list := "PodMonitor", "podMetricsEndpoints"
				if name == "serviceMonitor" {
					kind, list = "ServiceMonitor", "endpoints"
				}
				endpoints, _, _ := unstructured.NestedSlice(object(all, kind, component).Object, "spec", list)
				e := endpoints[0].(map[string]any)
				secret, _, _ := unstructured.NestedString(e, "authorization", "credentials", "name")
				skips, _, _ := unstructured.NestedBool(e, "tlsConfig", "insecureSkipVerify")
				ca, _, _ := unstructured.NestedString(e, "tlsConfig", "ca", "secret", "name")
				if (e["scheme"] == "https") == plain || (secret == "kernosis-metrics-token") == plain || skips != (name != "certificate" && !plain) || (ca == "metrics-tls") != (name == "certificate") {
					t.Errorf("%s: %v", component, e)
				}
			}
			if (object(all, "Secret", "kernosis-metrics-token") == nil) != plain || (object(all, "ClusterRole", "kernosis-metrics") == nil) != plain {
				t.Error("want a token and its role exactly with TLS")
			}
			agent := podsOf(t, all)["kernosis-agent"].Spec.Containers[0]
			if scheme := agent.LivenessProbe.HTTPGet.Scheme; (scheme == "HTTPS") == plain {
				t.Errorf("kubelet's probes use %s", scheme)
			}
			if slices.Contains(agent.Args, "--metrics-plain-http") != plain || slices.Contains(agent.Args, "--metrics-cert-file=/etc/kernosis/metrics/tls.crt") != (name == "certificate") {
				t.Errorf("%v", agent.Args)
			}
		})
	}
}
