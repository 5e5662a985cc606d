package tenancy_test

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/tenancy"
)

func TestParameters(t *testing.T) {
	own := map[string]string{"podUID": ownUID, "podNamespace": "shop", "podName": "web-0", "node": "n7", "address": "10.1.2.3"}
	with := func(more ...string) map[string]string {
		m := maps.Clone(own)
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	for _, c := range []struct{ given, want map[string]string }{
		{nil, own},
		{map[string]string{"port": "80", "window": "2s"}, with("port", "80", "window", "2s")},
		{map[string]string{"podUID": ownUID, "podName": "", "address": "fd00::3"}, with("address", "fd00::3")},
	} {
		got, err := tenancy.Parameters(c.given, web())
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%v: %v\n%s", c.given, err, diff)
		}
	}
	for name, value := range map[string]string{
		"podUID": others, "podNamespace": "kube-system", "podName": "web-1", "node": "n8", "container": "db", "containerID": strings.Repeat("0", 64),
		"cgroup": "/", "limitCgroup": "/", "pid": "1", "tgid": "1", "holderPID": "1", "startTime": "1s", "comm": "x", "subject": "x",
		"netns": "1", "address": "10.1.2.4", "source": "10.1.2.4", "device": "sda", "deviceNumber": "8:0", "mountPoint": "/", "fsType": "ext4",
		"url": "http://10.0.0.1", "server": "10.0.0.1", "interface": "eth0", "no-such": "x",
	} {
		_, err := tenancy.Parameters(map[string]string{name: value, "also": "x"}, web())
		if err == nil || !strings.Contains(err.Error(), "parameter "+name+" can't be") || !strings.Contains(err.Error(), "parameter also can't be given") {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	// If the pod's address is not known, none can be used instead.
	pod := web()
	pod.Addresses = nil
	if got, err := tenancy.Parameters(nil, pod); err != nil || got["address"] != "0.0.0.0" {
		t.Errorf("%v %v", got, err)
	}
}

// Each parameter of the built-ins for tenants can either be given by them, or is the pod's own, or
// is never given.
func TestWhatTenantsMayGiveToBuiltins(t *testing.T) {
	want := map[string][]string{
		"cgroup-memory":    {"window"},
		"container-detail": {},
		"pod-detail":       {},
		"re-probe":         {"headers", "host", "path", "port", "protocol", "service", "timeout"},
		"sockets":          {"port", "window"},
	}
	have := map[string][]string{}
	for _, b := range catalog.All(operation.Host{}) {
		if !b.TenantSafe {
			continue
		}
		names := []string{}
		for i := range b.Parameters {
			name := b.Parameters[i].Name
			if _, err := tenancy.Parameters(map[string]string{name: "x"}, web()); err == nil {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		have[b.Name] = names
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("look at what the new one can be led to: (-want +have)\n%s", diff)
	}
}

// Whatever a Diagnosis, an Operation's fixed parameters and results of other operations contain, a
// built-in only gets parameters of the tenant's pod.
func TestNothingLeadsToAnotherPod(t *testing.T) {
	names := map[string]bool{}
	for _, b := range catalog.All(operation.Host{}) {
		for i := range b.Parameters {
			names[b.Parameters[i].Name] = true
		}
		for i := range b.Results {
			names[b.Results[i].Name] = true
		}
	}
	all := slices.Sorted(maps.Keys(names))
	r := rand.New(rand.NewPCG(1, 2))
	some := func() map[string]string {
		m := map[string]string{}
		for _, n := range all {
			switch r.IntN(3) {
			case 0:
				m[n] = evil
			case 1:
				m[n] = ""
			}
		}
		return m
	}
	for range 300 {
		pod := web()
		if r.IntN(2) == 0 {
			pod.Addresses, pod.Container, pod.ContainerID = nil, "main", strings.Repeat("a", 64)
		}
		own, err := tenancy.Parameters(nil, pod)
		if err != nil {
			t.Fatal(err)
		}
		lead(t, own, some(), some(), some())
	}
}

// FuzzNothingLeadsToAnotherPod is the same for names and values of any kind.
func FuzzNothingLeadsToAnotherPod(f *testing.F) {
	f.Add("podUID", others, "window", "2s")
	f.Add("cgroup", "/kubepods/pod"+others, "address", "10.1.2.4")
	f.Add("podUID ", others, "PodUID", others)
	f.Fuzz(func(t *testing.T, name, value, second, other string) {
		given := map[string]string{name: value, second: other}
		own, err := tenancy.Parameters(given, web())
		if err != nil {
			return // refused
		}
		lead(t, own, given, given, given)
	})
}

// evil is a value that names another target, in any parameter.
const evil = "evil"

// lead runs each built-in as the runner does, and checks the parameters that it is called with.
func lead(t *testing.T, own, fixed, given, results map[string]string) {
	t.Helper()
	all := catalog.All(operation.Host{})
	var called operation.Values
	for i := range all {
		all[i].Parameters = slices.Clone(all[i].Parameters)
		for j := range all[i].Parameters {
			p := &all[i].Parameters[j]
			// Accept any value: validation is not what confines a tenant.
			p.Kind, p.Min, p.Max, p.Required = operation.String, 0, 0, false
		}
		all[i].Run = func(_ context.Context, call *operation.Call) (operation.Output, error) {
			called = call.Parameters
			return operation.Output{}, nil
		}
	}
	safe := tenancy.Builtins(all, own)
	for i := range safe {
		b := &safe[i]
		called = nil
		in := &runner.Inputs{Parameters: maps.Clone(given), Results: results, Log: slog.New(slog.DiscardHandler)}
		_, err := runner.Builtin(b, fixed).Run(t.Context(), in)
		if !b.TenantSafe {
			if err == nil || called != nil {
				t.Fatalf("%s has run", b.Name)
			}
			continue
		}
		if err != nil {
			continue // a text that can't be displayed
		}
		for name, value := range called {
			how := slices.Contains([]string{"window", "timeout", "port", "protocol", "path", "host", "headers", "service"}, name)
			if !how && value != own[name] {
				t.Fatalf("%s is called with %s=%q, the pod's is %q", b.Name, name, value, own[name])
			}
		}
		if called["podUID"] != own["podUID"] {
			t.Fatalf("%s is called without the pod: %v", b.Name, called)
		}
	}
}
