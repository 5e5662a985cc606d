package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
)

const kubeconfigFile = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://10.1.1.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

func TestRestConfig(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfigFile), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("not: [yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBERNETES_SERVICE_PORT", "")
	t.Setenv("KUBECONFIG", path) // used by kubectl, not by a daemon
	for name, tc := range map[string]struct {
		kubeconfig, override string
		want                 string // host token insecure
		mistake              string
	}{
		"no cluster":           {mistake: "no kubeconfig, and not in a pod"},
		"kubeconfig":           {kubeconfig: path, want: "https://10.1.1.1:6443 secret true"},
		"missing":              {kubeconfig: dir + "/missing", mistake: "missing"},
		"damaged":              {kubeconfig: bad, mistake: bad},
		"override of server":   {kubeconfig: path, override: "https://other:443", want: "https://other:443 secret true"},
		"override without pod": {override: "http://127.0.0.1:8080?inClusterConfig=false", want: "http://127.0.0.1:8080  false"},
		"insecure":             {override: "https://h:1?inClusterConfig=false&insecure=true", want: "https://h:1  true"},
		"auth":                 {override: "?inClusterConfig=false&auth=" + path, want: "https://10.1.1.1:6443 secret true"},
		"auth and server":      {override: "https://other:443?auth=" + path, want: "https://other:443 secret true"},
		"override in no pod":   {override: "https://h:1", mistake: "no kubeconfig, and not in a pod"},
		"no scheme":            {override: "host:8080", mistake: "want http or https"},
		"with a path":          {override: "https://h/x", mistake: "want http or https"},
		"no host":              {override: "?inClusterConfig=false", mistake: "a host or auth is required"},
		"unknown":              {override: "https://h?x=1", mistake: "x: want inClusterConfig, auth or insecure"},
		"of old":               {override: "https://h?useServiceAccount=true", mistake: "no longer supported"},
		"truth":                {override: "https://h?inClusterConfig=perhaps", mistake: "want true or false"},
	} {
		t.Run(name, func(t *testing.T) {
			k := &KubeSettings{Exporter: true, Kubeconfig: tc.kubeconfig, Override: tc.override, QPS: 20, Burst: 40}
			c, err := restConfig(k, "1")
			if tc.mistake != "" {
				if err == nil || !strings.Contains(err.Error(), tc.mistake) {
					t.Fatalf("got %+v, %v, want %q", c, err, tc.mistake)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(c.Host, " ", c.BearerToken, " ", c.Insecure); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if c.QPS != 20 || c.Burst != 40 || !strings.HasPrefix(c.UserAgent, "kernosis/") {
				t.Errorf("%+v", c)
			}
		})
	}
}

func TestConnect(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("NODE_NAME", "n7")
	connect := func(k KubeSettings) (*cluster, string, error) {
		c := Config{Kube: k}
		err := c.connect("1")
		return c.cluster, strings.Join(c.warnings, "\n"), err
	}
	if c, warning, err := connect(KubeSettings{Exporter: true}); c != nil || err != nil || !strings.Contains(warning, "nothing is reported to the API server") {
		t.Errorf("%+v, %q, %v", c, warning, err)
	}
	if c, warning, err := connect(KubeSettings{}); c != nil || err != nil || warning != "" {
		t.Errorf("%+v, %q, %v", c, warning, err)
	}
	if _, _, err := connect(KubeSettings{Exporter: true, Kubeconfig: "/does/not/exist"}); err == nil {
		t.Error("a kubeconfig that isn't there is no mistake")
	}
	c, _, err := connect(KubeSettings{Exporter: true, Override: "http://h:1?inClusterConfig=false"})
	if err != nil || c.node != "n7" || c.rest.Host != "http://h:1" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestInCluster(t *testing.T) {
	// The token's path is fixed: without a token, only the error can be tested.
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	if _, err := os.Stat("/var/run/secrets/kubernetes.io/serviceaccount/token"); err == nil {
		t.Skip("this is a pod")
	}
	if _, err := restConfig(&KubeSettings{}, "1"); err == nil || errors.Is(err, config.ErrNoCluster) || !strings.Contains(err.Error(), "in-cluster configuration") {
		t.Errorf("got %v", err)
	}
	// The agent must not run for good without reporting anything.
	c := Config{Kube: KubeSettings{Exporter: true}}
	if err := c.connect("1"); err == nil || !strings.Contains(err.Error(), "in-cluster configuration") || !strings.Contains(err.Error(), "--enable-k8s-exporter=false") {
		t.Errorf("got %v, warnings %q", err, c.warnings)
	}
}

func TestNodeName(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if name, from, err := (&KubeSettings{}).ResolveNodeName(nil); err == nil && (name != strings.ToLower(host) || from != "the host's name") {
		t.Errorf("%q from %s", name, from)
	}
	t.Setenv("NODE_NAME", "n7.example")
	if name, from, err := (&KubeSettings{}).ResolveNodeName(nil); err != nil || name != "n7.example" || from != "env NODE_NAME" {
		t.Errorf("%q from %s, %v", name, from, err)
	}
	if name, from, err := (&KubeSettings{NodeName: "n1"}).ResolveNodeName(config.Origins{flagNodeName: "flag --node-name"}); err != nil || name != "n1" || from != "flag --node-name" {
		t.Errorf("%q from %s, %v", name, from, err)
	}
	t.Setenv("NODE_NAME", "N_7")
	if _, _, err := (&KubeSettings{}).ResolveNodeName(nil); err == nil || !strings.Contains(err.Error(), "NODE_NAME") {
		t.Errorf("got %v", err)
	}
}
