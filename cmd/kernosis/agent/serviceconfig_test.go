package agent

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/probe/service"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

const servicesFile = `services:
  known: [kubelet, dns]
  probes:
  - name: mirror
    handler: https
    address: 127.0.0.1:5000
    path: /v2/
    headers: {X-Probe: kernosis}
    accept: [401]
    period: 20s
    condition: RegistryMirrorDown
  - name: kube-proxy
    failureThreshold: 6
`

func TestServicesOfTheConfiguration(t *testing.T) {
	out, err := printed(t, servicesFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kernosis.yaml:1\nservices:\n  known: [kubelet, dns]\n", "- name: mirror\n", "X-Probe: kernosis\n", "accept: [401]\n", "period: 20s\n", "failureThreshold: 6\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	again, err := printed(t, out)
	values := func(s string) string { return regexp.MustCompile(`#.*`).ReplaceAllString(s, "") }
	if err != nil || values(again) != values(out) {
		t.Errorf("%v, read again\n%s", err, again)
	}
	// The agent looks for services unless configured otherwise.
	if out, err = printed(t, ""); err != nil || !strings.Contains(out, "known: [auto]\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err = printed(t, "services: {known: []}\n"); err != nil || !strings.Contains(out, "known: []\n") {
		t.Errorf("switched off: %v\n%s", err, out)
	}
}

func TestMistakenServices(t *testing.T) {
	for file, want := range map[string]string{
		"services:\n  knwon: []\n":                         "kernosis.yaml:2: unknown key knwon",
		"services:\n  probes:\n  - name: a\n    addr: x\n": "kernosis.yaml:4: unknown key addr",
		"services:\n\n  known: [kubelt]\n":                 `kernosis.yaml:3: services.known: "kubelt": want one of auto, kubelet, runtime, kube-proxy, dns, apiserver`,
		"services:\n  known: [dns, dns]\n":                 "kernosis.yaml:2: services.known: dns is listed twice",
		"services:\n  probes:\n  - name: a\n    handler: tcp\n    address: x\n    condition: Down\n":                                                   `kernosis.yaml:5: services.probes[0].address: "x": want host:port`,
		"services:\n  probes:\n  - name: a\n    handler: tcp\n    address: x:1\n":                                                                      "kernosis.yaml:3: services.probes[0].condition: is missing",
		"services:\n  probes:\n  - name: a\n    handler: tcp\n    address: x:1\n    condition: Ready\n":                                                "kernosis.yaml:6: services.probes[0].condition: condition Ready is reserved",
		"services:\n  known: [dns]\n  probes:\n  - {name: a, handler: tcp, address: 'x:1', condition: DNSUnreachable}\n":                               "kernosis.yaml:4: services.probes[0].condition: condition DNSUnreachable already belongs to service dns",
		"services:\n  probes:\n  - {name: a, handler: tcp, address: 'x:1', condition: A}\n  - {name: a, handler: tcp, address: 'x:1', condition: B}\n": "kernosis.yaml:4: services.probes[1].name: a is already used by another service",
		"services:\n  known: [apiserver]\nenable-k8s-exporter: false\n":                                                                                "kernosis.yaml:2: services.known: apiserver: no cluster is configured",
		"services:\n  probes:\n  - name: apiserver\nenable-k8s-exporter: false\n":                                                                      "kernosis.yaml:3: services.probes[0].address: is missing",
		"services:\n  probes:\n  - name: kubelet\n    period: soon\n":                                                                                  "kernosis.yaml:4: ",
		"services:\n  probes:\n  - {name: a, handler: exec, command: [true], condition: A}\n":                                                          "kernosis.yaml:3: services.probes[0].command: want a program by its absolute path",
		"services: [kubelet]\n": "kernosis.yaml:1: ",
	} {
		_, err := printed(t, file)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", file, err, want)
		}
	}
	// A rule that sets the service's condition.
	dir := t.TempDir()
	rules := "apiVersion: rules.kernosis.io/v1\nconditions:\n  KubeletUnhealthy: {healthyReason: A, healthyMessage: b}\nrules:\n" +
		"- {name: own, events: [oomkill], condition: KubeletUnhealthy, reason: R, message: m, latched: true}\n"
	if err := os.WriteFile(filepath.Join(dir, "own.yaml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := Config{RulesDir: dir, ShippedRules: []string{"*"}, origins: config.Origins{"services.known": "kernosis.yaml:2"}, Services: serviceSettings{Known: []string{service.Kubelet}}}
	cfg.defaultServices()
	if _, _, err := cfg.rules(); err == nil || !strings.Contains(err.Error(), "kernosis.yaml:2: services.known: condition KubeletUnhealthy of service kubelet is already set by rule own (") {
		t.Error(err)
	}
}

// The conditions of services: Unknown, True after the threshold of failures, False again.
func TestServiceRules(t *testing.T) {
	cfg := Config{ShippedRules: []string{"*"}, Services: serviceSettings{Known: []string{service.Kubelet, service.Resolver}}}
	cfg.defaultServices()
	rules, _, err := cfg.rules()
	if err != nil {
		t.Fatal(err)
	}
	e := detector.NewEngine(rules)
	at := event.Moment{Wall: time.Now(), Boot: hostfs.BootTime()}
	report := func(ev *event.Event) {
		at = at.Add(10 * time.Second)
		ev.Time, ev.BootTime, ev.CPU = at.Wall, event.Duration(at.Boot), event.NoCPU
		e.Observe(ev, at)
	}
	condition := func(name string) (c problem.Condition) {
		for _, c := range e.Conditions() {
			if c.Type == name {
				return c
			}
		}
		t.Fatalf("no condition %s", name)
		return c
	}
	want := func(status problem.Status, reason, message string) {
		t.Helper()
		if c := condition("KubeletUnhealthy"); c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message) {
			t.Errorf("%+v, want %s %s %s", c, status, reason, message)
		}
		if c := condition("DNSUnreachable"); c.Status != problem.Unknown {
			t.Errorf("%+v", c)
		}
	}
	failed := func(name, kind string, n uint32) *event.Event {
		return &event.Event{Kind: event.Probe, Probe: &event.ProbeData{
			Name: name, Probe: kind, Failures: n, Threshold: 3, ProbeOutcome: event.ProbeOutcome{Verdict: event.VerdictRefused, Cause: "nothing listens at 127.0.0.1:10248"},
		}}
	}
	up := func(b bool, why string) *event.Event {
		return &event.Event{Kind: event.Source, SourceUp: &event.SourceData{Stem: event.NamedStem(event.ServiceStem, service.Kubelet), Up: b, Reason: why}}
	}
	report(&event.Event{Kind: event.Source, SourceUp: &event.SourceData{Stem: string(event.Probe), Up: true}})
	want(problem.Unknown, problem.ReasonSourceNotStarted, "service/kubelet")
	report(up(true, ""))
	want(problem.False, "KubeletIsHealthy", "")
	report(failed(service.Kubelet, event.ProbeService, 2))
	report(failed("kubelet", "readiness", 3)) // a pod's probe
	want(problem.False, "KubeletIsHealthy", "")
	report(failed(service.Kubelet, event.ProbeService, 3))
	message := "kubelet: nothing listens at 127.0.0.1:10248 (refused, 3 times in a row)"
	want(problem.True, "KubeletUnhealthy", message)
	report(failed(service.Kubelet, event.ProbeService, 4))
	want(problem.True, "KubeletUnhealthy", message)
	report(&event.Event{Kind: event.ProbeRecovered, Probe: &event.ProbeData{Name: service.Resolver, Probe: event.ProbeService}})
	report(&event.Event{Kind: event.ProbeRecovered, Probe: &event.ProbeData{Name: service.Kubelet, Probe: "liveness"}})
	want(problem.True, "KubeletUnhealthy", message)
	report(&event.Event{Kind: event.ProbeRecovered, Probe: &event.ProbeData{Name: service.Kubelet, Probe: event.ProbeService}})
	want(problem.False, "KubeletIsHealthy", "")
	report(up(false, "can't run the probe: why"))
	want(problem.Unknown, detector.ReasonSourceUnavailable, "service/kubelet: can't run the probe: why")
}
