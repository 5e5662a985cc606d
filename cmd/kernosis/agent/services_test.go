package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/collector"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/collector/probe/service"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/metrics"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// The example of docs/services.md is valid.
func TestDocumentedServices(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/services.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "```yaml\n")
	file, _, found := strings.Cut(rest, "```")
	if out, err := printed(t, file); !found || err != nil || !strings.Contains(out, "registry-mirror") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, s := range service.Known() {
		if !strings.Contains(string(raw), "| `"+s.Name+"` |") || !strings.Contains(string(raw), "`"+s.Condition+"`") {
			t.Errorf("%s and %s are not in the table", s.Name, s.Condition)
		}
	}
}

// A discovered service gets its rule and condition, and is remembered after a restart.
func TestFoundServices(t *testing.T) {
	testenv.OnlyInTestAll(t)
	const ownRule = "apiVersion: rules.kernosis.io/v1\nconditions:\n  KubeletUnhealthy: {healthyReason: A, healthyMessage: b}\nrules:\n" +
		"- {name: own, events: [oomkill], condition: KubeletUnhealthy, reason: R, message: m, latched: true}\n"
	state := t.TempDir()
	open := func(rulesDir string) (*serviceProbes, *pipeline, error) {
		quiet := slog.New(slog.DiscardHandler)
		cfg := Config{isAgent: true, StateDir: state, RulesDir: rulesDir, ShippedRules: []string{"*"}, HostRoot: t.TempDir()}
		cfg.defaultServices()
		cfg.rememberServices(quiet)
		set, _, err := cfg.rules()
		if err != nil {
			return nil, nil, err
		}
		store, err := journal.Open(filepath.Join(t.TempDir(), JournalDir), journal.Options{MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		a := &pipeline{
			stateDir: state, log: quiet, metrics: metrics.New("test", ""), journal: store, out: console.NewText(io.Discard),
			engine: detector.NewEngine(set), wake: make(chan struct{}, 1), patterns: func(*logpattern.Set) {}, lasting: func(collector.Emit) {},
		}
		p := &parts{cfg: cfg, log: quiet, metrics: a.metrics, agent: a, mutes: &muteFile{path: filepath.Join(state, "mutes.yaml"), a: a, rules: set}}
		if err := p.openServices(); err != nil {
			t.Fatal(err)
		}
		return p.services, a, nil
	}
	has := func(a *pipeline) bool { return a.ruleOfCondition("KubeletUnhealthy") == "service-kubelet" }
	p, a, err := open(t.TempDir())
	if err != nil || has(a) || !slices.Equal(p.wanted(), service.Findable()) {
		t.Fatalf("%v before: %q", err, p.wanted())
	}
	kubelet := service.Known()[0]
	p.found(kubelet)
	if !has(a) || slices.Contains(p.wanted(), service.Kubelet) || len(a.conditions()) == 0 {
		t.Errorf("after: %q", p.wanted())
	}
	// After a reload a rule of the operator sets the condition: the service is dropped, and
	// found again when the rule is gone.
	own := filepath.Join(p.cfg.RulesDir, "own.yaml")
	if err := os.WriteFile(own, []byte(ownRule), 0o600); err != nil {
		t.Fatal(err)
	}
	probed := func() bool {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(p.runner)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(fmt.Sprint(families), `value:"kubelet"`)
	}
	if !probed() {
		t.Error("kubelet is not probed")
	}
	// As if its source had been up before a restart, so that it needs no probe to be known.
	a.saw, a.ended = map[string]bool{"service/kubelet": true}, hostfs.BootTime()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.runner.Run(ended); err != nil {
		t.Fatal(err)
	}
	sources := func(want int) {
		t.Helper()
		if n, err := testutil.GatherAndCount(a.metrics.Registry, "kernosis_source_up"); err != nil || n != want {
			t.Errorf("%d sources in the metrics, want %d: %v", n, want, err)
		}
	}
	sources(1)
	before := a.journal.Seq()
	if err := reloadRules(a, p.cfg, p.mutes); err != nil || a.ruleOfCondition("KubeletUnhealthy") != "own" || probed() {
		t.Errorf("%v: rule %q, probed: %v", err, a.ruleOfCondition("KubeletUnhealthy"), probed())
	}
	sources(0)
	if _, err := a.journal.Read(before, func(e journal.Entry) error {
		for _, tr := range e.Transitions {
			if c := tr.Condition; c != nil && strings.Contains(c.Message, "service/kubelet") {
				t.Errorf("the condition waits for a service that was dropped: %+v", *c)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	p.found(kubelet)
	if has(a) || probed() {
		t.Error("the service replaces the rule")
	}
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	if err := reloadRules(a, p.cfg, p.mutes); err != nil {
		t.Fatal(err)
	}
	if p.found(kubelet); !has(a) || !probed() {
		t.Error("not found again")
	}
	if p, a, err = open(""); err != nil || !has(a) || slices.Contains(p.wanted(), service.Kubelet) {
		t.Errorf("%v after a restart: %q", err, p.wanted())
	}
	// If a rule of the operator sets the condition at the start, the service is dropped.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "own.yaml"), []byte(ownRule), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err = open(dir); err == nil {
		t.Error("both set the condition")
	}
	// What the agent does then.
	cfg := Config{isAgent: true, StateDir: state, RulesDir: dir, ShippedRules: []string{"*"}}
	cfg.defaultServices()
	cfg.rememberServices(slog.New(slog.DiscardHandler))
	cfg.services.add(service.Known()[1])
	if _, _, err := cfg.rulesNow(); err != nil || !slices.Equal(cfg.services.found, []string{service.Known()[1].Name}) {
		t.Errorf("%v, left: %v", err, cfg.services.found)
	}
	// Commands that ask for its rules agree, and leave its state as it is.
	remembered, err := os.ReadFile(cfg.foundServicesPath())
	if err != nil {
		t.Fatal(err)
	}
	cfg = Config{isAgent: true, StateDir: state, RulesDir: dir, ShippedRules: []string{"*"}}
	cfg.defaultServices()
	set, err := cfg.RulesInForce()
	if err != nil || !slices.ContainsFunc(set.Rules(), func(r *detector.Rule) bool { return r.Name == "own" }) {
		t.Errorf("the rules in force: %v", err)
	}
	if after, err := os.ReadFile(cfg.foundServicesPath()); err != nil || !bytes.Equal(after, remembered) {
		t.Errorf("%v, remembered services %s, then %s", err, remembered, after)
	}
	// Services of another boot are forgotten.
	if err := os.WriteFile(cfg.foundServicesPath(), []byte(`{"bootID":"other","found":["kubelet"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, a, err = open(""); err != nil || has(a) {
		t.Errorf("%v: remembered over a boot", err)
	}
}

// The API server's address and CA come from the cluster configuration.
func TestReachAPIServer(t *testing.T) {
	s := service.Service{Name: service.APIServer}.Filled()
	cfg := Config{}
	if err := cfg.reachAPIServer(&s); err == nil {
		t.Error("without a cluster")
	}
	cfg.cluster = &cluster{rest: &rest.Config{TLSClientConfig: rest.TLSClientConfig{ServerName: "kubernetes"}}}
	cfg.cluster.rest.Host = "https://api.example:6443/prefix"
	if err := cfg.reachAPIServer(&s); err != nil || s.Address != "api.example:6443" || s.Path != "/prefix/livez" {
		t.Errorf("%+v, %v", s, err)
	}
	s = service.Service{Name: service.APIServer}.Filled()
	cfg.cluster.rest.Host = "https://api.example"
	if err := cfg.reachAPIServer(&s); err != nil || s.Address != "api.example:443" || s.Path != "/livez" || s.Handler != "https" || s.TLS == nil || s.TLS.ServerName != "kubernetes" || s.TLS.InsecureSkipVerify {
		t.Errorf("%+v, %v", s, err)
	}
	own := service.Service{Name: service.APIServer, Address: "10.0.0.1:6443"}.Filled()
	if err := cfg.reachAPIServer(&own); err != nil || own.Address != "10.0.0.1:6443" || own.TLS != nil {
		t.Errorf("%+v, %v", own, err)
	}
}
