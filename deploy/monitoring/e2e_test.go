package monitoring_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// After real faults, Prometheus answers each query of each dashboard, the alerts for these faults
// fire, and agent and controller export the metrics documented in docs/metrics.md.
func TestRealFaultsShow(t *testing.T) {
	testenv.OnlyInTestAll(t)
	prometheus := testenv.FindProgram(t, "prometheus")
	s := newStage(t)
	s.probed(t)
	s.startAgent() // it finds the stand-in for kubelet
	s.startPrometheus(prometheus)
	s.triggers()
	s.silent(t)
	s.strangers(t)
	s.log(t, "hello")
	s.truncated(t)
	heal := s.provoke(t)
	defer heal()
	for range 3 { // of these, rule chatty records one
		s.log(t, "chatty")
	}
	t.Run("alerts fire", func(t *testing.T) { s.alertsFire(t) })
	t.Run("alerts name what is affected", func(t *testing.T) { s.alertsName(t) })
	t.Run("queries", func(t *testing.T) { s.queriesAnswer(t) })
	t.Run("metrics", func(t *testing.T) { s.metricsAreKnown(t) })
	if *pictures != "" {
		s.draw(t, *pictures)
	}
}

// alertsFire waits for the alerts for the provoked faults.
func (s *stage) alertsFire(t *testing.T) {
	// Alert, and the fault that causes it.
	want := map[string]string{
		"OOMKilling warning":                  "six OOM kills",
		"DiskIOError warning":                 "eight failed writes",
		"DiskUnhealthy critical":              "the same, of one disk",
		"ReadonlyFilesystem critical":         "an ext4 that refuses writes",
		"KernosisOtherCondition warning":      "a check of node-problem-detector's form that fails",
		"KernosisDegraded warning":            "a log whose folder is not there",
		"KernosisSourceDown warning":          "a log that is not there",
		"KernosisRuleErrors info":             "a rule that divides by 0",
		"KernosisRuleGroupsOverflowed info":   "a rule that follows one group",
		"KernosisAgentSilent warning":         "a Lease that nobody renews",
		"KernosisTriggersLeftOut warning":     "a Trigger whose time is none",
		"KernosisAlertSendersRefused warning": "alerts with a token that is none",
		"ProbeTargetRefused warning":          "a liveness probe of a port where nothing listens",
	}
	// What must not fire: agent and controller are up and report.
	never := []string{
		"KernosisAgentsAbsent critical", "KernosisAgentDown warning", "KernosisControllerAbsent critical", "KernosisManyAgentsSilent critical",
		"KernosisAPINotAcknowledged warning", "KernosisAPIForbidden warning", "KernosisJournalNotWritten warning",
	}
	s.await(t, "alerts", 2*time.Minute, func(ctx context.Context) (bool, string) {
		firing, err := s.firing(ctx)
		var missing []string
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if !firing[name] {
				missing = append(missing, fmt.Sprintf("%s (%s)", name, want[name]))
			}
		}
		counted, _ := s.query(ctx, "problem_counter > 0", false)
		return len(missing) == 0 && err == nil, fmt.Sprintf("%v; missing: %s; firing: %q; counted: %v", err, strings.Join(missing, ", "), slices.Sorted(maps.Keys(firing)), brief(counted))
	})
	firing, err := s.firing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Warning or critical, depending on what else was killed on this machine.
	if !firing["FrequentOOMKilling warning"] && !firing["FrequentOOMKilling critical"] {
		t.Error("FrequentOOMKilling does not fire for six kills in one control group")
	}
	// Only now: with the shortened durations some fired before the first scrape of their targets.
	now, err := s.query(t.Context(), `ALERTS{alertstate="firing"}`, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range now {
		if name := one.Metric["alertname"] + " " + one.Metric["severity"]; slices.Contains(never, name) {
			t.Errorf("%s fires: %v", name, one.Metric)
		}
	}
	t.Logf("%d alerts fire: %v", len(firing), slices.Sorted(maps.Keys(firing)))
}

// alertsName waits until the description of an alert names the disk and the command to run.
func (s *stage) alertsName(t *testing.T) {
	s.await(t, "description that names the device", time.Minute, func(ctx context.Context) (bool, string) {
		text, err := s.get(ctx, "/api/v1/alerts")
		if err != nil {
			return false, err.Error()
		}
		var answer struct {
			Data struct {
				Alerts []struct {
					Labels, Annotations map[string]string
				}
			}
		}
		if err := json.Unmarshal(text, &answer); err != nil {
			return false, err.Error()
		}
		for _, a := range answer.Data.Alerts {
			if a.Labels["alertname"] == "DiskUnhealthy" {
				named := strings.Contains(a.Annotations["description"], " Affected: loop")
				return named && a.Annotations["command"] == "kubectl kernosis why node "+s.node, fmt.Sprint(a.Annotations)
			}
		}
		return false, fmt.Sprintf("%d alerts", len(answer.Data.Alerts))
	})
}

// brief returns the values of series by reason.
func brief(all []series) map[string]any {
	out := map[string]any{}
	for _, one := range all {
		out[one.Metric["reason"]] = one.Value[1]
	}
	return out
}

// empty returns the queries that return nothing here, by a part of the expression, and why.
func empty() map[string]string {
	return map[string]string{
		"kernosis_diagnoses_dropped_total": "a thousand diagnoses would have to wait",
		"kernosis_program_skips_total":     "no program was interrupted by itself",
		"kernosis_events_dropped_total":    "thousands of Events on one object would be over its budget; promtool's case has it",
		"kernosis_sources_overflowed":      "an agent would need more than 256 sources; promtool's case has it",
	}
}

// queriesAnswer runs every query as Grafana would.
func (s *stage) queriesAnswer(t *testing.T) {
	quiet := empty()
	used := map[string]bool{}
	type one struct {
		where, expr string
		over        bool
	}
	var left []one
	for _, d := range readDashboards(t) {
		for i := range d.Panels {
			p := &d.Panels[i]
			for _, q := range p.Targets {
				// Without the fallback, which would always return something.
				expr := strings.ReplaceAll(q.Expr, " or vector(0)", "")
				expr = filled(expr, map[string]string{"node": s.node}, "5s", fmt.Sprintf("%ds", int(time.Since(s.began).Seconds())+1))
				left = append(left, one{d.File + ": " + p.Title, expr, q.Range})
			}
		}
	}
	total := len(left)
	ask := func(ctx context.Context) {
		left = slices.DeleteFunc(left, func(o one) bool {
			got, err := s.query(ctx, o.expr, o.over)
			if err != nil && ctx.Err() == nil {
				t.Fatalf("%s: %s: %v", o.where, o.expr, err)
			}
			return shown(got) > 0
		})
	}
	due := func(o one) bool {
		for part := range quiet {
			if strings.Contains(o.expr, part) {
				used[part] = true
				return false
			}
		}
		return true
	}
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for deadline := time.Now().Add(testenv.Within(2 * time.Minute)); ; <-again.C {
		ask(t.Context())
		if !slices.ContainsFunc(left, due) || time.Now().After(deadline) {
			break
		}
	}
	if t.Failed() || slices.ContainsFunc(left, due) {
		got, err := s.query(t.Context(), "kernosis_remediation_decisions_total", false)
		t.Logf("decisions: %v, %v", got, err)
	}
	for _, o := range left {
		if due(o) {
			t.Errorf("%s: nothing to show for %s", o.where, o.expr)
		}
	}
	for part, why := range quiet {
		if !used[part] {
			t.Logf("queries with %s have something to show, though %s", part, why)
		}
	}
	t.Logf("%d of %d queries have something to show", total-len(left), total)
}

// notHere returns the metrics that neither agent nor controller exports here, and why.
func notHere() map[string]string {
	const (
		source = "pods are the API server's here, not kubelet's or a file's"
		stats  = "no figures of the node are asked for, and none fail"
	)
	return map[string]string{
		"kernosis_pod_source_reads_total": source, "kernosis_pod_source_failures_total": source, "kernosis_pod_source_pods": source,
		"kernosis_pod_source_pods_faulty": source, "kernosis_pod_source_last_read_timestamp_seconds": source,
		"kernosis_system_stats_errors_total": stats, "kernosis_system_stats_left_out": stats,
		"kernosis_events_dropped_total":    "no Event was refused, and none is over its budget",
		"kernosis_diagnoses_dropped_total": "no diagnosis is one too many",
	}
}

// metricsAreKnown compares the metrics of both with docs/metrics.md, in both directions.
func (s *stage) metricsAreKnown(t *testing.T) {
	catalog := readCatalog(t)
	absent := notHere()
	for of, url := range map[string]string{"agent": s.agentURL, "controller": s.controllerURL} {
		var families map[string]*dto.MetricFamily
		s.await(t, "metrics of the "+of, time.Minute, func(context.Context) (bool, string) {
			families = s.scrape(t, url)
			var missing []string
			for _, m := range catalog {
				if m.Of == of && families[m.Name] == nil && absent[m.Name] == "" {
					missing = append(missing, m.Name)
				}
			}
			return len(missing) == 0, "missing: " + strings.Join(missing, ", ")
		})
		for name, f := range families {
			if !strings.HasPrefix(name, "kernosis_") && !strings.HasPrefix(name, "problem_") {
				continue
			}
			i := slices.IndexFunc(catalog, func(m metric) bool { return m.Name == name && m.Of == of })
			if i < 0 {
				t.Errorf("docs/metrics.md does not have %s of the %s", name, of)
				continue
			}
			if kind := strings.ToLower(f.GetType().String()); kind != catalog[i].Type {
				t.Errorf("%s is a %s, docs/metrics.md says %s", name, kind, catalog[i].Type)
			}
			labels := map[string]bool{}
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = true
				}
			}
			if of == "agent" && strings.HasPrefix(name, "kernosis_") && !labels["node"] {
				t.Errorf("%s has no label node", name)
			}
			delete(labels, "node")
			if want := slices.Sorted(slices.Values(catalog[i].Labels)); !slices.Equal(slices.Sorted(maps.Keys(labels)), want) {
				t.Errorf("%s has the labels %v, docs/metrics.md says %v", name, slices.Sorted(maps.Keys(labels)), want)
			}
		}
		for name, why := range absent {
			if families[name] != nil { // caused by other activity on this machine
				t.Logf("the %s shows %s, though %s", of, name, why)
			}
		}
	}
}

func (s *stage) scrape(t *testing.T, url string) map[string]*dto.MetricFamily {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // as Prometheus does here
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return kubetest.ParseMetrics(t, text)
}
