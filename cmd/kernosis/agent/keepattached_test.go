package agent

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
)

// At its end, an agent decides by the API server's answers whether there will be a next agent.
func TestKeepsAttached(t *testing.T) {
	const selecting = `{"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": {"name": "a"}, "spec": {"template": {"spec": {"nodeSelector": {"pool": "%s"}}}}}`
	for _, c := range []struct {
		name   string
		status int
		body   string
		want   bool
	}{
		{"there", http.StatusOK, `{"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": {"name": "a"}}`, true},
		{"selects the Node", http.StatusOK, fmt.Sprintf(selecting, "gpu"), true},
		{"selects other Nodes", http.StatusOK, fmt.Sprintf(selecting, "cpu"), false},
		{"being deleted", http.StatusOK, `{"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}}`, false},
		{"gone", http.StatusNotFound, "", false},
		{"service account gone", http.StatusUnauthorized, "", false},
		{"rights gone", http.StatusForbidden, "", false},
		{"API server broken", http.StatusInternalServerError, "", true},
		{"API server away", http.StatusServiceUnavailable, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch r.URL.Path {
				case "/apis/apps/v1/namespaces/ns/daemonsets/a":
					w.WriteHeader(c.status)
					_, _ = w.Write([]byte(c.body))
				case "/api/v1/nodes/n7":
					_, _ = w.Write([]byte(`{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n7", "labels": {"pool": "gpu"}}}`))
				default:
					t.Errorf("asked for %s", r.URL.Path)
				}
			}))
			defer server.Close()
			if got := atEnd(t, server.URL).keepsAttached(slog.New(slog.DiscardHandler)); got != c.want {
				t.Errorf("kept: %t, want %t", got, c.want)
			}
		})
	}
	closed := httptest.NewServer(nil)
	closed.Close()
	if !atEnd(t, closed.URL).keepsAttached(slog.New(slog.DiscardHandler)) {
		t.Error("not kept where nothing answers")
	}
}

func atEnd(t *testing.T, url string) *Config {
	t.Helper()
	to, err := newCluster(&rest.Config{Host: url}, "n7")
	if err != nil {
		t.Fatal(err)
	}
	c := &Config{KeepAttached: true, cluster: to}
	c.Kube.Namespace, c.Kube.DaemonSet = "ns", "a"
	return c
}
