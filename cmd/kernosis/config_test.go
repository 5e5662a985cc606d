package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
)

// printed runs "config print", with a configuration file if file is not empty, and returns output
// and warnings.
func printed(t *testing.T, file string, args ...string) (out, warnings string, err error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "kernosis.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	root := newRoot()
	var stdout, stderr bytes.Buffer
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetArgs(append([]string{"config", "print"}, args...))
	err = root.Execute()
	return stdout.String(), stderr.String(), err
}

const reportsFile = `reports:
- name: gpu-monitor
  uid: [0, 1000]
  heartbeat: 30s
  conditions:
  - type: GPUUnhealthy
    healthyReason: GPUIsHealthy
    healthyMessage: all GPUs answer
`

// Flag, environment and file take precedence in this order, and the origin is printed.
func TestConfigPrint(t *testing.T) {
	t.Setenv("KERNOSIS_STATE_DIR", "/env")
	t.Setenv("KERNOSIS_OUTPUT", "json")
	t.Setenv("KERNOSIS_HEARTBEAT", "0")
	t.Setenv("KERNOSIS_CONFIG_SYSTEM_STATS_MONITOR", "/a.json,/b.json")
	t.Setenv("KERNOSIS_EMPTY", "")
	t.Setenv("KERNOSIS_LISTN", ":80")
	// Set by kubelet for a service "kernosis" in the namespace.
	t.Setenv("KERNOSIS_PORT", "tcp://10.0.0.1:443")
	t.Setenv("KERNOSIS_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KERNOSIS_PORT_443_TCP_ADDR", "10.0.0.1")
	t.Setenv("NODE_NAME", "n7")
	out, warnings, err := printed(t, "log-level: debug\n\nstate-dir: /file\noutput: text\nkube-api-qps: 7.5\n"+reportsFile,
		"--output", "text", "--k8s-exporter-heartbeat-period", "1m", "--target", "10.0.0.7:80")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"state-dir: /env # env KERNOSIS_STATE_DIR\n", "output: text # flag --output\n", "heartbeat: 1m0s # flag --heartbeat\n",
		"kernosis.yaml:1\n", "kube-api-qps: 7.5 # ", "kernosis.yaml:5\n", "journal-mib: 64 # default\n", "port: 20256 # default\n",
		"# env KERNOSIS_CONFIG_SYSTEM_STATS_MONITOR\nconfig.system-stats-monitor: [/a.json, /b.json]\n",
		"# flag --target\n", "kernosis.yaml:6\nreports:\n  - name: gpu-monitor\n", `node-name: "" # default: n7, env NODE_NAME` + "\n",
		"report-socket: /run/kernosis/report.sock # default\n", "listen: \"\" # default\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if warnings != "kernosis: warning: unknown environment variable KERNOSIS_LISTN\n" {
		t.Errorf("warnings %q", warnings)
	}

	// The output, read as a file, gives the same configuration.
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, config.EnvPrefix) {
			t.Setenv(name, "")
		}
	}
	again, _, err := printed(t, out)
	if err != nil {
		t.Fatal(err)
	}
	values := func(text string) (lines []string) {
		for l := range strings.Lines(text) {
			value, _, _ := strings.Cut(l, "# ")
			lines = append(lines, strings.TrimSpace(value))
		}
		return slices.DeleteFunc(lines, func(l string) bool { return l == "" })
	}
	if a, b := values(out), values(again); !slices.Equal(a, b) {
		t.Errorf("printed\n%s\nread and printed\n%s", out, again)
	}
}

func TestConfigPrintForRun(t *testing.T) {
	out, _, err := printed(t, "", "--for", "run")
	if err != nil || !strings.Contains(out, "listen: 127.0.0.1:20257 # default") || !strings.Contains(out, `report-socket: "" # default`) || !strings.Contains(out, "known: []\n") {
		t.Errorf("%v\n%s", err, out)
	}
	// As in "kernosis run", settings of the agent have no effect, and flags come before the file.
	out, _, err = printed(t, "kube-api-qps: 0\nexporter.stackdriver: x\njournal-mib: 9\nlog: [kmsg]\n", "--for", "run", "--journal-mib", "7", "--log", "none")
	if err != nil || strings.Contains(out, "kube-api-qps") || strings.Contains(out, "heartbeat") || strings.Contains(out, "node-name") ||
		!strings.Contains(out, "journal-mib: 7 # flag --journal-mib\n") || !strings.Contains(out, "# flag --log\nlog: [none]\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, _, err := printed(t, "", "--for", "ages"); err == nil {
		t.Error("--for ages is taken")
	}
}

func TestMistakenConfig(t *testing.T) {
	for name, tc := range map[string]struct {
		file string
		env  [2]string
		args []string
		want []string
	}{
		"unknown key":      {file: "output: json\nlisen: x\n", want: []string{"kernosis.yaml:2: unknown key lisen"}},
		"type in file":     {file: "journal-mib: 1\nhung-task-after: soon\n", want: []string{"kernosis.yaml:2: "}},
		"values in file":   {file: "output: xml\n\njournal-mib: 0\n", want: []string{`kernosis.yaml:1: output: "xml": want text or json`, "kernosis.yaml:3: journal-mib: 0, want"}},
		"value of flag":    {args: []string{"--log-level", "loud"}, want: []string{`--log-level: "loud": want one of`}},
		"type of flag":     {args: []string{"--journal-mib", "x"}, want: []string{`--journal-mib: "x": want a whole number`}},
		"value of env":     {env: [2]string{"KERNOSIS_OUTPUT", "xml"}, want: []string{`KERNOSIS_OUTPUT: "xml": want text or json`}},
		"type of env":      {env: [2]string{"KERNOSIS_KEEP_ATTACHED", "maybe"}, want: []string{`KERNOSIS_KEEP_ATTACHED: "maybe", want true or false`}},
		"port of env":      {env: [2]string{"KERNOSIS_PORT", "99999"}, want: []string{`KERNOSIS_PORT: "99999", want a whole number up to 65535`}},
		"logs of env":      {env: [2]string{"KERNOSIS_LOGS", "kmsg"}, want: []string{"KERNOSIS_LOGS: can't be set by a variable: set logs in the configuration file (--config)"}},
		"services of env":  {env: [2]string{"KERNOSIS_SERVICES", "[kubelet]"}, want: []string{"KERNOSIS_SERVICES: can't be set"}},
		"target":           {args: []string{"--target", "x"}, want: []string{`--target: "x": want ADDRESS:PORT`}},
		"no state":         {args: []string{"--state-dir", ""}, want: []string{"--state-dir: must not be empty"}},
		"listen":           {file: "log: [none]\nlisten: 20257\n", want: []string{`kernosis.yaml:2: listen: "20257": want ADDRESS:PORT, for example 127.0.0.1:20257`}},
		"listen's port":    {args: []string{"--listen", ":70000"}, want: []string{`--listen: ":70000": want ADDRESS:PORT`}},
		"address":          {args: []string{"--address", "[::1]"}, want: []string{`--address: "[::1]": want an address without a port`}},
		"figures' address": {file: "prometheus-address: 127.0.0.1:20257\n", want: []string{`kernosis.yaml:1: prometheus-address: "127.0.0.1:20257": want an address without a port`}},
		"log":              {file: "state-dir: /a\nlog: [kmgs, file]\n", want: []string{`kernosis.yaml:2: log: unknown source "kmgs", did you mean "kmsg"?`, `kernosis.yaml:2: log: "file": path: is missing`}},
		"certificate":      {file: "metrics-cert-file: /tls.crt\nmetrics-plain-http: true\n", want: []string{"kernosis.yaml:1: metrics-cert-file: set both metrics-cert-file and metrics-key-file, or neither", "kernosis.yaml:2: metrics-plain-http: can't be combined with metrics-cert-file"}},
		"key alone":        {args: []string{"--metrics-key-file", "/tls.key"}, want: []string{"--metrics-key-file: set both"}},
		"agent's of run":   {args: []string{"--for", "run", "--heartbeat", "1m", "--log", "kmgs"}, want: []string{"--heartbeat: is not a flag of kernosis run"}},
		"no file":          {args: []string{"--config", "/does/not/exist"}, want: []string{"/does/not/exist"}},
		"node name":        {args: []string{"--hostname-override", "a b"}, want: []string{`--node-name: "a b" is not a valid name of a node`}},
		"namespace":        {args: []string{"--event-namespace", "A"}, want: []string{`--event-namespace: "A" is not a valid name`}},
		"qps":              {args: []string{"--kube-api-qps", "0"}, want: []string{"--kube-api-qps: 0, want more than 0"}},
		"qps, not number":  {args: []string{"--kube-api-qps", "NaN"}, want: []string{"--kube-api-qps: NaN"}},
		"burst":            {args: []string{"--kube-api-burst", "0"}, want: []string{"--kube-api-burst: 0, want"}},
		"heartbeat":        {args: []string{"--heartbeat", "1s"}, want: []string{"--heartbeat: 1s, want 0 or at least 10s"}},
		"lease":            {args: []string{"--lease-duration", "1500ms"}, want: []string{"--lease-duration: 1.5s"}},
		"renewal":          {args: []string{"--lease-renew-interval", "30s"}, want: []string{"--lease-renew-interval: 30s, want at most half of lease-duration 40s"}},
		"override":         {args: []string{"--apiserver-override", "ftp://x"}, want: []string{"--apiserver-override: "}},
		"stackdriver":      {args: []string{"--exporter.stackdriver", "/config/x.json"}, want: []string{"--exporter.stackdriver: Stackdriver is not supported"}},
		"no socket":        {file: reportsFile, args: []string{"--report-socket", ""}, want: []string{"kernosis.yaml:1: reports: these daemons need a report-socket"}},
		"report's key":     {file: "reports:\n- name: a\n  conditons: []\n", want: []string{"kernosis.yaml:3: unknown key conditons"}},
		"report's fields":  {file: "reports:\n- name: A\n  heartbeat: 1s\n  conditions:\n  - {type: Ready, healthyReason: A, healthyMessage: b}\n  - {type: Good}\n", want: []string{`kernosis.yaml:2: reports[0].name: "A": want lower-case`, "kernosis.yaml:3: reports[0].heartbeat: 1s, want", "kernosis.yaml:5: reports[0].conditions[0]: condition Ready is reserved", "kernosis.yaml:6: reports[0].conditions[1]: healthyReason and healthyMessage"}},
		"report twice":     {file: "reports:\n- {name: a, conditions: [{type: X, healthyReason: A, healthyMessage: b}]}\n- {name: b, conditions: [{type: X, healthyReason: A, healthyMessage: b}]}\n", want: []string{"kernosis.yaml:3: reports[1].conditions[0]: condition X already belongs to source a"}},
		"report, severity": {file: "reports:\n- {name: a, conditions: [{type: X, healthyReason: A, healthyMessage: b, severity: bad}]}\n", want: []string{`severity "bad"`}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.env[0] != "" {
				t.Setenv(tc.env[0], tc.env[1])
			}
			out, _, err := printed(t, tc.file, tc.args...)
			if err == nil {
				t.Fatalf("taken:\n%s", out)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in:\n%v", want, err)
				}
			}
		})
	}
}

// Command lines of node-problem-detector work unchanged.
func TestNPDCommandLine(t *testing.T) {
	out, _, err := printed(t, "", "--logtostderr", "--v=2", "--enable-k8s-exporter=false", "--k8s-exporter-heartbeat-period=2m",
		"--k8s-exporter-write-events=false", "--k8s-exporter-update-node-conditions=true", "--event-namespace=kube-system",
		"--apiserver-override=http://127.0.0.1:8080?inClusterConfig=false", "--apiserver-wait-timeout=1m", "--apiserver-wait-interval=2s",
		"--kube-api-qps=500", "--kube-api-burst=500", "--hostname-override=n1", "--address=0.0.0.0", "--port=0",
		"--prometheus-address=0.0.0.0", "--prometheus-port=20257", "--exporter.stackdriver=",
		"--config.system-log-monitor=/config/a.json,/config/b.json", "--config.system-log-monitor", "/config/c.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"config.system-log-monitor: [/config/a.json, /config/b.json, /config/c.json]", "heartbeat: 2m0s #", "node-name: n1 #",
		"kube-api-qps: 500 #", "enable-k8s-exporter: false #", "event-namespace: kube-system #"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	_, warnings, err := printed(t, "", "--logtostderr", "-v", "4", "--vmodule=x=1", "--apiserver-wait-timeout=1m")
	if err != nil || strings.Count(warnings, "\n") != 2 || !strings.Contains(warnings, "--v has no effect") || !strings.Contains(warnings, "--vmodule has no effect") {
		t.Errorf("warnings %q, %v", warnings, err)
	}
}
