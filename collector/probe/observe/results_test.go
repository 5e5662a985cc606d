package observe_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/collector/probe/observe"
)

// The page of kubelet 1.36, with the histograms shortened.
const served = `# HELP prober_probe_duration_seconds [ALPHA] Duration in seconds for a probe response.
# TYPE prober_probe_duration_seconds histogram
prober_probe_duration_seconds_bucket{container="app",namespace="shop",pod="web-1",probe_type="Liveness",le="0.005"} 12
prober_probe_duration_seconds_sum{container="app",namespace="shop",pod="web-1",probe_type="Liveness"} 0.02
# HELP prober_probe_total [BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.
# TYPE prober_probe_total counter
prober_probe_total{container="app",namespace="shop",pod="web-1",pod_uid="u1",probe_type="Liveness",result="failed"} 3
prober_probe_total{container="app",namespace="shop",pod="web-1",pod_uid="u1",probe_type="Liveness",result="successful"} 1234567
prober_probe_total{container="app",namespace="shop",pod="web-1",pod_uid="u1",probe_type="Readiness",result="unknown"} 2
prober_probe_total{container="db",namespace="shop",pod="web-1",pod_uid="u1",probe_type="Startup",result="successful"} 1
`

func want() map[probe.Key]observe.Results {
	return map[probe.Key]observe.Results{
		{PodUID: "u1", Container: "app", Kind: probe.Liveness}:  {Failed: 3, Succeeded: 1234567},
		{PodUID: "u1", Container: "app", Kind: probe.Readiness}: {},
		{PodUID: "u1", Container: "db", Kind: probe.Startup}:    {Succeeded: 1},
	}
}

func TestReadResults(t *testing.T) {
	got, err := observe.ReadResults(strings.NewReader(served))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want(), got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"prober_probe_total{container=\n", "prober_probe_total{} x\n", "prober_probe_total{a=\"" + strings.Repeat("x", 1<<20) + "\"} 1\n"} {
		if _, err := observe.ReadResults(strings.NewReader(bad)); err == nil {
			t.Errorf("%.40q is read", bad)
		}
	}
	if got, err := observe.ReadResults(strings.NewReader("")); err != nil || len(got) != 0 {
		t.Errorf("%v %v", got, err)
	}
}

// Over TLS with a token, from a server whose certificate is the one in the file.
func TestResults(t *testing.T) {
	allowed := true
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics/probes" || r.Header.Get("Authorization") != "Bearer secret" || !allowed {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(served))
	}))
	defer srv.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pages, err := pods.NewAsker(pods.KubeletConfig{URL: srv.URL, Insecure: true, TokenFile: token})
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Close()
	m := observe.KubeletMetrics{Pages: pages}
	got, err := m.Results(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want(), got); diff != "" {
		t.Error(diff)
	}
	allowed = false
	if _, err := m.Results(t.Context()); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Results(ctx); err == nil {
		t.Error("an answer after the end")
	}
}

func FuzzReadResults(f *testing.F) {
	f.Add(served)
	f.Add("prober_probe_total{pod_uid=\"u\",result=\"failed\"} NaN\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := observe.ReadResults(strings.NewReader(text))
		if err == nil && len(got) > strings.Count(text, "prober_probe_total{") {
			t.Errorf("%d probes", len(got))
		}
	})
}
