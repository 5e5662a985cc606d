package resolve

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/operation/remote"
	"github.com/kernosis/kernosis/diagnose/runner"
)

func builtins() []operation.Builtin { return catalog.All(operation.Host{}) }

func read(t *testing.T, text string) *manifest.Set {
	t.Helper()
	r, err := manifest.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.Parse(document.File{Name: "set.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// set returns an OperationSet that runs the operations one after the other.
func set(operations ...string) string {
	var b strings.Builder
	b.WriteString("apiVersion: kernosis.io/v1alpha1\nkind: OperationSet\nmetadata: {name: s}\nspec:\n  adjacencyList:\n  - {id: 0, to: [1]}\n")
	for i, o := range operations {
		to, dependences := "", ""
		if i+1 < len(operations) {
			to = fmt.Sprintf(", to: [%d]", i+2)
		}
		if i > 0 {
			dependences = fmt.Sprintf(", dependences: [%d]", i)
		}
		fmt.Fprintf(&b, "  - {id: %d, operation: %s%s%s}\n", i+1, o, to, dependences)
	}
	return b.String()
}

// op returns an Operation.
func op(name, spec string) string {
	return "---\napiVersion: kernosis.io/v1alpha1\nkind: Operation\nmetadata: {name: " + name + "}\nspec:\n  " + strings.ReplaceAll(spec, "\n", "\n  ") + "\n"
}

func mustResolve(t *testing.T, c Config, m *manifest.Set) *Plan {
	t.Helper()
	p, err := Set(c, m.OperationSets[0])
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAnObjectComesBeforeTheBuiltinOfItsName(t *testing.T) {
	m := read(t, set("dns-lookup", "kmsg-tail", "hook", "sh")+
		op("dns-lookup", "processor: {timeoutSeconds: 7, builtin: {name: dns-lookup, parameters: {name: example.org}}}\nretry: {limit: 3, backoff: 20ms, maxBackoff: 1s}")+
		op("hook", "processor: {httpServer: {address: hook.example.org}}")+
		op("sh", "effect: Check\nretry: {}\nprocessor: {scriptRunner: {script: 'echo', argKeys: [device]}}\ndependences: [kmsg-tail]"))
	p := mustResolve(t, Of(m.Operations, builtins()), m)
	for id, want := range map[int]runner.Step{
		1: {Timeout: 7 * time.Second, Retries: 3, Backoff: 20 * time.Millisecond, MaxBackoff: time.Second},
		2: {},
		3: {Timeout: 30 * time.Second},
		4: {Timeout: 30 * time.Second, Retries: 2, Backoff: time.Second, MaxBackoff: 30 * time.Second},
	} {
		have := p.Steps[id]
		have.Operation = runner.Operation{}
		if !reflect.DeepEqual(have, want) {
			t.Errorf("node %d: %+v, want %+v", id, have, want)
		}
	}
	var effects []operation.Effect
	for id := range p.Graph.Len() {
		effects = append(effects, p.Effect(id))
	}
	if diff := cmp.Diff([]operation.Effect{"", "Collect", "Collect", "Remediate", "Check"}, effects); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{3, 2}, p.Graph.Node(4).Dependences); diff != "" {
		t.Error("an Operation's own dependences:", diff)
	}
	if diff := cmp.Diff([]int{4}, p.Scripts); diff != "" {
		t.Error(diff)
	}
	// A web server takes anything.
	if err := p.CheckParameters(map[string]string{"device": "sda", "whatever": "x"}); err != nil {
		t.Error(err)
	}
}

func TestAllMistakesAreReportedAtOnce(t *testing.T) {
	m := read(t, set("blocked-stack", "a", "b", "c", "d", "blocked-stack")+
		op("a", "processor: {builtin: {name: check-accept-queue, parameters: {port: '80'}}}")+
		op("b", "processor: {builtin: {name: check-accept-queue-full, parameters: {prot: '80', window: 3d, port: '80'}}}\ntenantSafe: true")+
		op("c", "processor:\n  httpServer:\n    scheme: https\n    address: 169.254.169.254\n    caBundle: "+base64.StdEncoding.EncodeToString([]byte("no PEM"))+"\n    clientCertificateSecret: {name: pager}")+
		op("d", "processor: {scriptRunner: {script: ' '}}\ndependences: [z]")+
		op("unused", "processor: {builtin: {name: nothing}}"))
	_, err := Set(Of(m.Operations, builtins()), m.OperationSets[0])
	const want = `set.yaml:7:13: spec.adjacencyList[1].operation: node 1: no Operation or built-in is named "blocked-stack", did you mean "blocked-stacks"?
set.yaml:11:13: spec.adjacencyList[5].operation: node 5: operation "d" depends on operation "z", which does not run on every path to the node
set.yaml:12:13: spec.adjacencyList[6].operation: node 6: no Operation or built-in is named "blocked-stack", did you mean "blocked-stacks"?
set.yaml:18:25: spec.processor.builtin.name: no built-in is named "check-accept-queue", did you mean "check-accept-queue-full"?
set.yaml:24:69: spec.processor.builtin.parameters.prot: check-accept-queue-full has no parameter "prot", did you mean "port"?
set.yaml:24:81: spec.processor.builtin.parameters.window: "3d": want a duration such as 1m30s
set.yaml:25:3: spec.tenantSafe: the built-in check-accept-queue-full exposes more than one pod: it is not safe for tenants
set.yaml:32:5: spec.processor.httpServer: address: 169.254.169.254 is link-local, like cloud metadata services
set.yaml:35:7: spec.processor.httpServer.caBundle: certificate authorities: want PEM certificates
set.yaml:36:7: spec.processor.httpServer.clientCertificateSecret: the Secret pager can't be read without a cluster
set.yaml:42:15: spec.processor.scriptRunner: script is empty`
	if diff := cmp.Diff(want, fmt.Sprint(In(m, err))); diff != "" {
		t.Error(diff)
	}
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 11 || faults[1].Reason != "UnknownOperation" {
		t.Errorf("%#v", err)
	}
	if first := faults[1].Error(); !strings.HasPrefix(first, "OperationSet s: spec.adjacencyList[1].operation: ") {
		t.Error(first)
	}
}

// Mistakes in the graph and unknown names are reported together.
func TestMistakesOfTheGraphAndOfNames(t *testing.T) {
	m := read(t, strings.Replace(set("kmsg-tail", "linx"), "to: [2]", "to: [1]", 1))
	_, err := Set(Of(m.Operations, builtins()), m.OperationSets[0])
	for _, want := range []string{"nodes 1 → 1", `"linx", did you mean "links"?`, "node 2: no edge leads to it"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

func TestASecretOfTheCluster(t *testing.T) {
	m := read(t, set("c")+op("c", "processor: {httpServer: {scheme: https, clientCertificateSecret: {name: pager}}}"))
	for what, want := range map[string]struct {
		data map[string][]byte
		err  error
		want string
	}{
		"none":    {nil, errors.New("forbidden"), "forbidden"},
		"half":    {map[string][]byte{"tls.crt": []byte("x")}, nil, "the Secret pager has no tls.crt or no tls.key"},
		"garbage": {map[string][]byte{"tls.crt": []byte("x"), "tls.key": []byte("y")}, nil, "client certificate: "},
	} {
		c := Of(m.Operations, builtins())
		asked := ""
		c.Secret = func(_ context.Context, name string) (map[string][]byte, error) {
			asked = name
			return want.data, want.err
		}
		plan, err := Set(c, m.OperationSets[0])
		if err != nil || asked != "" {
			t.Fatalf("%s: %v, asked for %q before it runs", what, err, asked)
		}
		if _, err := plan.Steps[1].Operation.Run(t.Context(), &runner.Inputs{}); err == nil || !strings.Contains(err.Error(), "clientCertificateSecret: ") || !strings.Contains(err.Error(), want.want) || asked != "pager" {
			t.Errorf("%s: %v, asked for %q", what, err, asked)
		}
	}
}

func TestParameters(t *testing.T) {
	m := read(t, set("blocked-stacks", "check-disk-stalled", "systemd-unit", "sh", "check-accept-queue-full")+
		op("check-disk-stalled", "processor: {builtin: {name: check-disk-stalled, parameters: {window: 3s}}}")+
		op("sh", "effect: Collect\nprocessor: {scriptRunner: {script: 'echo', argKeys: [state, volume], operationResultKey: x}}"))
	p := mustResolve(t, Of(m.Operations, builtins()), m)
	err := p.CheckParameters(map[string]string{"devise": "sda", "window": "x", "pid": "-1", "port": "80", "volume": "a\nb"})
	const want = `parameter "devise": no operation of the graph has it, did you mean "device"?
parameter pid: -1 is negative
parameter window: "x": want a duration such as 1m30s
parameter unit is required by node 3 (systemd-unit)`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Error(diff)
	}
	if err := p.CheckParameters(map[string]string{"unit": "kubelet", "port": "80", "volume": "x"}); err != nil {
		t.Error(err) // the script gets state as a result of systemd-unit
	}
	if got := strings.Join(p.Parameters(), " "); !strings.Contains(got, "port") || !strings.Contains(got, "volume") {
		t.Error(got)
	}
	fixed := read(t, set("check-disk-stalled")+op("check-disk-stalled", "processor: {builtin: {name: check-disk-stalled, parameters: {window: 3s}}}"))
	err = mustResolve(t, Of(fixed.Operations, builtins()), fixed).CheckParameters(map[string]string{"window": "2s"})
	if err == nil || !strings.Contains(err.Error(), "no operation of the graph has it") {
		t.Errorf("a parameter that is fixed can be given: %v", err)
	}
}

func TestStorage(t *testing.T) {
	m := read(t, set("a")+op("a", "processor: {builtin: {name: kmsg-tail}}\nstorage: {hostPath: {path: x/y}}"))
	if p := mustResolve(t, Of(m.Operations, builtins()), m); p.Steps[1].Folder != "x/y" {
		t.Errorf("%+v", p.Steps[1])
	}
	m = read(t, set("a")+op("a", "processor: {builtin: {name: kmsg-tail}}\nstorage: {hostPath: {path: /etc/cron.d}}"))
	_, err := Set(Of(m.Operations, builtins()), m.OperationSets[0])
	if err == nil || !strings.Contains(In(m, err).Error(), "spec.storage.hostPath.path: /etc/cron.d is a system folder") {
		t.Error(err)
	}
}

// Servers and scripts get parameters and results, and parameters win.
func TestAServerAndAScriptRun(t *testing.T) {
	var got map[string]string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		fmt.Fprint(w, `{"answer":"42"}`)
	}))
	defer server.Close()
	at := netip.MustParseAddrPort(server.Listener.Addr().String())
	m := read(t, set("hook", "sh")+
		op("hook", fmt.Sprintf("effect: Collect\nprocessor: {httpServer: {address: %s, port: %d}}", at.Addr(), at.Port()))+
		op("sh", "processor: {scriptRunner: {script: 'echo', argKeys: [a]}}"))
	p := mustResolve(t, Of(m.Operations, builtins()), m)
	in := &runner.Inputs{Parameters: map[string]string{"a": "1"}, Results: map[string]string{"a": "2", "b": "3"}, Log: slog.New(slog.DiscardHandler)}
	out, err := p.Steps[1].Operation.Run(context.Background(), in)
	if err != nil || out.Results["answer"] != "42" {
		t.Errorf("%+v, %v", out, err)
	}
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "3"}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := p.Steps[2].Operation.Run(context.Background(), in); !errors.Is(err, remote.ErrScriptsOff) || !strings.Contains(err.Error(), "diagnose-scripts") {
		t.Error(err)
	}
}

func TestNear(t *testing.T) {
	known := []string{"check-accept-queue-full", "check-no-listener", "links", "mounts", "pid", "port"}
	for wrong, want := range map[string]string{
		"link": `"links"`, "Mounts": `"mounts"`, "accept-queue": `"check-accept-queue-full"`, "prt": `"port"`, "restart": "", "": "",
		strings.Repeat("x", 100): "",
	} {
		if want != "" {
			want = ", did you mean " + want + "?"
		}
		if got := document.Suggest(wrong, known); got != want {
			t.Errorf("%q: %q, want %q", wrong, got, want)
		}
	}
}
