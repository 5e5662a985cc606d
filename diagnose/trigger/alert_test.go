package trigger_test

import (
	"maps"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

func payload(tb testing.TB, path string) []byte {
	tb.Helper()
	data, err := os.ReadFile("testdata/" + path)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// full returns an alert of Alertmanager's webhook.
func full(tb testing.TB) *trigger.Alert {
	tb.Helper()
	a, err := trigger.DecodeWebhook(payload(tb, "webhook/filesystem.json"))
	if err != nil || len(a.Alerts) != 2 || len(a.Refused) != 0 || a.Omitted != 3 {
		tb.Fatal(a, err)
	}
	return a.Alerts[0]
}

func TestWhichAlertsAreChosen(t *testing.T) {
	for regexp, want := range map[string]bool{
		`alertName: Filesystem`:                              true, // anywhere in the text
		`alertName: ^Filesystem`:                             false,
		`alertName: ^NodeFilesystem(AlmostOutOf|Full)Space$`: true,
		`labels: {severity: critical}`:                       true,
		`labels: {severity: crit}`:                           true,
		`labels: {severity: ^crit$}`:                         false,
		`labels: {severity: critical, mountpoint: ^/var}`:    true,
		`labels: {severity: critical, mountpoint: ^/data}`:   false,
		`labels: {team: ""}`:                                 false, // the label must be present
		`labels: {node: ""}`:                                 true,
		`labels: {Severity: critical}`:                       false,
		`annotations: {summary: "less than 3%"}`:             true,
		`annotations: {note: .*}`:                            false,
		`startsAt: ^2026-03-01T11:5`:                         true,
		`startsAt: "^2026-03-01 11:58:07.412 \\+0000 UTC$"`:  true, // KubeDiag's format
		`startsAt: ^2025`:                                    false,
		`endsAt: ^0001-01-01`:                                true,
		`generatorURL: //prometheus-\d+:`:                    true,
		`generatorURL: thanos`:                               false,
		`alertName: Node, labels: {severity: critical}, generatorURL: prometheus-0`:       true,
		`alertName: Node, labels: {severity: critical}, annotations: {summary: "^Inode"}`: false,
	} {
		e := engineWith(t, `{operationSet: s, nodeName: n1, sourceTemplate: {prometheusAlertTemplate: {regexp: {`+regexp+`}}}}`)
		if got := e.Alert(full(t), trigger.Known{}, start); (len(got) == 1) != want {
			t.Errorf("%s: %v", regexp, names(got))
		}
	}
}

const diskFull = `{operationSet: disk-full, cooldown: 0s, parameters: {mountpoint: /, top: "5"}, sourceTemplate: {prometheusAlertTemplate: {
	regexp: {alertName: ^NodeFilesystemAlmostOutOfSpace$}, nodeNameReferenceLabel: node, parameterInjectionLabels: [mountpoint, device, team]}}}`

func TestWhatADiagnosisOfAnAlertSays(t *testing.T) {
	e := engineWith(t, diskFull)
	dx := only(t, e.Alert(full(t), trigger.Known{}, start))
	want := v1alpha1.DiagnosisSpec{
		OperationSet: "disk-full", NodeName: "n7",
		Parameters: v1alpha1.Parameters{"node": "n7", "mountpoint": "/var/lib/containerd", "device": "/dev/nvme0n1p2", "top": "5"},
	}
	want.TTL.Duration = v1alpha1.DefaultTTL
	if diff := cmp.Diff(want, dx.Spec); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{
		trigger.AnnotationTriggeredBy: `alert NodeFilesystemAlmostOutOfSpace with fingerprint ` + full(t).Fingerprint() + `: {container="node-exporter", device="/dev/nvme0n1p2", fstype="ext4", instance="10.0.0.7:9100", job="node-exporter", mountpoint="/var/lib/containerd", namespace="monitoring", node="n7", pod="node-exporter-x7k2p", severity="critical"}`,
		trigger.AnnotationSubject:     "alert NodeFilesystemAlmostOutOfSpace",
		trigger.AnnotationEpisode:     "2026-03-01T11:58:07.412Z",
	}, dx.Annotations); diff != "" {
		t.Error(diff)
	}
}

// KubeDiag's setup: Prometheus posts to the controller as if to an Alertmanager.
func TestAlertOfAPod(t *testing.T) {
	a, err := trigger.DecodeAlerts(payload(t, "alerts/pods.json"))
	if err != nil || len(a.Alerts) != 2 || len(a.Refused) != 0 {
		t.Fatal(a, err)
	}
	const spec = `{operationSet: s, sourceTemplate: {prometheusAlertTemplate: {regexp: {alertName: KubePodCrashLooping},
		podNamespaceReferenceLabel: namespace, podNameReferenceLabel: pod, containerReferenceLabel: container}}}`
	e := engineWith(t, spec)
	dx := only(t, e.Alert(a.Alerts[0], trigger.Known{}, start))
	if diff := cmp.Diff(&v1alpha1.PodReference{Namespace: "shop", Name: "db-0", Container: "pg"}, dx.Spec.PodReference); diff != "" || dx.Spec.NodeName != "" {
		t.Error(diff, dx.Spec.NodeName)
	}
	if dx.Annotations[trigger.AnnotationSubject] != "shop/db-0" || dx.Spec.Parameters["podName"] != "db-0" {
		t.Errorf("%+v", dx)
	}
	none(t, e.Alert(a.Alerts[1], trigger.Known{}, start)) // it has ended
	running := only(t, engineWith(t, spec).Alert(a.Alerts[1], trigger.Known{}, start.Add(-5*time.Minute)))
	if running.Spec.PodReference.Container != "" {
		t.Error("an empty label is a label")
	}
}

func TestTargetsOfAlerts(t *testing.T) {
	const byNode = `nodeNameReferenceLabel: node`
	const byPod = `podNamespaceReferenceLabel: namespace, podNameReferenceLabel: pod, containerReferenceLabel: container`
	for name, test := range map[string]struct {
		template, more string
		labels         map[string]string
		node, pod, why string
		selector       bool
	}{
		"node":                         {template: byNode, labels: map[string]string{"node": "n7"}, node: "n7"},
		"node, and a default":          {template: byNode, more: "nodeName: n1, ", labels: map[string]string{"node": "n7"}, node: "n7"},
		"no such label":                {template: byNode, why: trigger.WithheldNoTarget},
		"no such label, and a default": {template: byNode, more: "nodeName: n1, ", node: "n1"},
		"no such label, and others":    {template: byNode, more: "targetSelector: {maxTargets: 50, nodeNames: [n1, n2]}, ", selector: true},
		"an address and port":          {template: byNode, labels: map[string]string{"node": "10.0.0.7:9100"}, why: trigger.WithheldInvalidTarget},
		"pod":                          {template: byPod, labels: map[string]string{"namespace": "a", "pod": "b"}, pod: "a/b"},
		"pod, and a default node":      {template: byPod, more: "nodeName: n1, ", labels: map[string]string{"namespace": "a", "pod": "b"}, pod: "a/b", node: "n1"},
		"pod and node":                 {template: byPod + ", " + byNode, labels: map[string]string{"namespace": "a", "pod": "b", "node": "n7"}, pod: "a/b", node: "n7"},
		"half a pod":                   {template: byPod + ", " + byNode, labels: map[string]string{"pod": "b", "node": "n7"}, node: "n7"},
		"half a pod alone":             {template: byPod, labels: map[string]string{"namespace": "a"}, why: trigger.WithheldNoTarget},
		"a namespace that is none":     {template: byPod, labels: map[string]string{"namespace": "a.b", "pod": "b"}, why: trigger.WithheldInvalidTarget},
		"a container that is none":     {template: byPod, labels: map[string]string{"namespace": "a", "pod": "b", "container": "../c"}, why: trigger.WithheldInvalidTarget},
	} {
		t.Run(name, func(t *testing.T) {
			e := engineWith(t, `{operationSet: s, `+test.more+`sourceTemplate: {prometheusAlertTemplate: {regexp: {alertName: X}, `+test.template+`}}}`)
			a := &trigger.Alert{Labels: map[string]string{"alertname": "X"}, StartsAt: start}
			maps.Copy(a.Labels, test.labels)
			got := e.Alert(a, trigger.Known{}, start)
			if test.why != "" {
				none(t, got)
				none(t, e.Alert(a, trigger.Known{}, start)) // counted once
				counts(t, e, "t0", 0, map[string]uint64{test.why: 1})
				return
			}
			dx := only(t, got)
			pod := ""
			if r := dx.Spec.PodReference; r != nil {
				pod = r.Namespace + "/" + r.Name
			}
			if dx.Spec.NodeName != test.node || pod != test.pod || (dx.Spec.TargetSelector != nil) != test.selector {
				t.Errorf("%+v", dx.Spec)
			}
		})
	}
}

// An alert is sent every minute while it fires, maybe by both Prometheus servers of a pair.
func TestAlertThatGoesOn(t *testing.T) {
	matchers := matchersOf(t, diskFull)
	e := engineOf(t, matchers...)
	first := only(t, e.Alert(full(t), trigger.Known{}, start))
	for i := range 100 {
		a := full(t)
		a.EndsAt = after(time.Duration(i+4) * time.Minute)
		a.Annotations["description"] = "another figure"
		none(t, e.Alert(a, trigger.Known{}, after(time.Duration(i)*time.Minute)))
	}
	e = restarted(t, e, matchers)
	none(t, e.Alert(full(t), trigger.Known{}, start))
	counts(t, e, "t0", 0, nil)
	anew := full(t)
	anew.StartsAt = after(time.Hour)
	second := only(t, e.Alert(anew, trigger.Known{}, after(time.Hour)))
	if second.Name == first.Name {
		t.Error(first.Name)
	}
	// The server of the pair that noticed it earlier, but reports later.
	anew.StartsAt = after(59 * time.Minute)
	none(t, e.Alert(anew, trigger.Known{}, after(time.Hour)))
	// A clock that is ahead must not hide later alerts.
	anew.StartsAt = after(48 * time.Hour)
	none(t, e.Alert(anew, trigger.Known{}, after(2*time.Hour)))
	counts(t, e, "t0", 1, map[string]uint64{trigger.WithheldFuture: 1})
	anew.StartsAt = after(3 * time.Hour)
	only(t, e.Alert(anew, trigger.Known{}, after(3*time.Hour)))
}

// Alerts are identified by labels, not by the fingerprint, which is short enough for deliberate
// collisions.
func TestAlertsAreKnownByTheirLabels(t *testing.T) {
	e := engineWith(t, `{operationSet: s, nodeName: n1, cooldown: 0s, sourceTemplate: {prometheusAlertTemplate: {regexp: {alertName: X}}}}`)
	seen := map[string]bool{}
	for _, labels := range []map[string]string{
		{"alertname": "X"}, {"alertname": "X", "a": "b"}, {"alertname": "X", "a": `b"c"d`}, {"alertname": "X", "a": "b", "c": "d"}, {"alertname": "XX"},
	} {
		seen[only(t, e.Alert(&trigger.Alert{Labels: labels, StartsAt: start}, trigger.Known{}, start)).Name] = true
	}
	if len(seen) != 5 {
		t.Error(seen)
	}
}

// Foreign text is not passed to an operation if it is not plain text.
func TestLabelsThatAreNoText(t *testing.T) {
	e := engineWith(t, `{operationSet: s, nodeName: n1, sourceTemplate: {prometheusAlertTemplate: {regexp: {alertName: X}, parameterInjectionLabels: [a, b]}}}`)
	dx := only(t, e.Alert(&trigger.Alert{Labels: map[string]string{"alertname": "X", "a": "x\x1b[31m", "b": "fine"}, StartsAt: start}, trigger.Known{}, start))
	if _, has := dx.Spec.Parameters["a"]; has || dx.Spec.Parameters["b"] != "fine" || dx.Annotations[trigger.AnnotationOmitted] != "a" {
		t.Errorf("%+v", dx)
	}
}

// An alert reports whether it lasts or is gone only on the Diagnosis of its own episode.
func TestWhatAnAlertReportsOfItsDiagnosis(t *testing.T) {
	specs := []string{diskFull, `{operationSet: s, nodeName: n1, cooldown: 1h, sourceTemplate: {prometheusAlertTemplate: {regexp: {annotations: {summary: "less than 3%"}}}}}`}
	e := engineWith(t, specs...)
	a := full(t)
	if reported := e.Reported(a, start); reported != nil {
		t.Errorf("of nothing: %+v", reported)
	}
	made := names(e.Alert(a, trigger.Known{}, start))
	if len(made) != 2 {
		t.Fatal(made)
	}
	began := a.StartsAt
	report := func(name string, starts, ends time.Time, over bool, want ...trigger.Reported) {
		t.Helper()
		b := *a
		b.StartsAt, b.EndsAt, b.Over = starts, ends, over
		b.Annotations = nil // a resolved alert may have other annotations
		if diff := cmp.Diff(want, e.Reported(&b, start)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	both := func(gone bool, since time.Time) []trigger.Reported {
		return []trigger.Reported{{Diagnosis: made[0], Gone: gone, Since: since}, {Diagnosis: made[1], Gone: gone, Since: since}}
	}
	ends := start.Add(-time.Second)
	report("it lasts", began, time.Time{}, false, both(false, began)...)
	report("as Prometheus sends it", began, start.Add(4*time.Minute), false, both(false, began)...)
	report("resolved", began, ends, true, both(true, ends)...)
	report("resolved, as Prometheus sends it", began, ends, false, both(true, ends)...)
	report("resolved, and nobody says when", began, time.Time{}, true, both(true, start)...)
	report("by a clock that is ahead", began, start.Add(time.Minute), true, both(true, start)...)
	report("another Prometheus saw it before", began.Add(-time.Second), ends, true, both(true, ends)...)
	report("another episode, later", began.Add(time.Second), time.Time{}, false)
	report("another episode, later, resolved", began.Add(time.Second), ends, true)
	report("an episode before, resolved", began.Add(-time.Hour), began.Add(-time.Minute), true)
	// An alert that is withheld because of the cooldown belongs to no Diagnosis.
	later := *a
	later.StartsAt = began.Add(time.Minute)
	if again := names(e.Alert(&later, trigger.Known{}, start)); len(again) != 1 {
		t.Fatal(again)
	} else if reported := e.Reported(&later, start); len(reported) != 1 || reported[0].Diagnosis != again[0] {
		t.Errorf("%+v, made %v", reported, again)
	}
	// It survives a restart.
	f := restarted(t, e, matchersOf(t, specs...))
	if reported := f.Reported(&later, start); len(reported) != 1 {
		t.Errorf("%+v", reported)
	}
}
