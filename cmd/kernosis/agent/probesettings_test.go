package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
)

func TestProbeSettings(t *testing.T) {
	from := config.Origins{"probes": "flag --probes"}
	good := probeSettings{Mode: ProbesObserve, PodsFrom: PodsFromAPI, Process: []string{"kubelet"}}
	for name, c := range map[string]struct {
		change func(s *probeSettings)
		want   string // text of the error; empty: no error
	}{
		"as it is":          {func(*probeSettings) {}, ""},
		"off":               {func(s *probeSettings) { s.Mode, s.Process = ProbesOff, nil }, ""},
		"another mode":      {func(s *probeSettings) { s.Mode = "on" }, `--probes: "on": want observe or off`},
		"nobody probes":     {func(s *probeSettings) { s.Process = nil }, "prober-process: 0 names"},
		"a long name":       {func(s *probeSettings) { s.Process = []string{"0123456789abcdef"} }, "1 to 15 bytes"},
		"kubelet":           {func(s *probeSettings) { s.KubeletURL, s.KubeletInsecure = "https://10.0.0.3:10250", true }, ""},
		"none":              {func(s *probeSettings) { s.KubeletURL = none }, ""},
		"without TLS":       {func(s *probeSettings) { s.KubeletURL = "http://10.0.0.3:10255" }, "only a loopback address"},
		"whom to trust":     {func(s *probeSettings) { s.KubeletURL, s.KubeletCA, s.KubeletInsecure = "https://a:1", "ca", true }, "want only one of"},
		"a token in clear":  {func(s *probeSettings) { s.KubeletURL, s.KubeletToken = "http://127.0.0.1:1", "token" }, "needs https"},
		"pods of kubelet":   {func(s *probeSettings) { s.PodsFrom = PodsFromKubelet }, ""},
		"pods of another":   {func(s *probeSettings) { s.PodsFrom = "etcd" }, `pods-from: "etcd": want api or kubelet`},
		"pods of two":       {func(s *probeSettings) { s.PodsFrom, s.PodsFile = PodsFromKubelet, "pods.yaml" }, "pods-from: kubelet can't be used with pods-file"},
		"pods of nobody":    {func(s *probeSettings) { s.PodsFrom, s.KubeletURL = PodsFromKubelet, none }, "pods-from: kubelet needs a kubelet-url, which is none"},
		"no address at all": {func(s *probeSettings) { s.KubeletURL = "kubelet" }, "want https://host:port"},
	} {
		s := good
		c.change(&s)
		err := s.check(from)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// By default kubelet is verified by its own certificate, if that exists.
func TestKubeletOfTheNode(t *testing.T) {
	root := t.TempDir()
	s := probeSettings{KubeletURL: "https://127.0.0.1:10250"}
	if c := s.source(root); c.CertFile != "" || c.Insecure {
		t.Errorf("%+v", c)
	}
	cert := filepath.Join(root, kubeletCert)
	if err := os.MkdirAll(filepath.Dir(cert), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cert, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if c := s.source(root); c.CertFile != cert {
		t.Errorf("%+v", c)
	}
	// kubelet's folder on another disk, behind a link that is absolute on the node
	if err := errors.Join(os.Rename(filepath.Join(root, "var/lib/kubelet"), filepath.Join(root, "data")), os.Symlink("/data", filepath.Join(root, "var/lib/kubelet"))); err != nil {
		t.Fatal(err)
	}
	if c := s.source(root); c.CertFile != filepath.Join(root, "data/pki/kubelet.crt") {
		t.Errorf("behind a link: %+v", c)
	}
	s.KubeletInsecure = true
	if c := s.source(root); c.CertFile != "" {
		t.Errorf("%+v", c)
	}
	for ip, want := range map[string]string{"": kubeletHere, "10.0.0.3": "https://10.0.0.3:10250", "fd00::3": "https://[fd00::3]:10250", "node": kubeletHere} {
		t.Setenv("NODE_IP", ip)
		if c := (&probeSettings{}).source(root); c.URL != want {
			t.Errorf("NODE_IP=%q: %s, want %s", ip, c.URL, want)
		}
	}
	if asks, why := (&probeSettings{KubeletURL: none}).asksKubelet(); asks || why == "" {
		t.Errorf("%v %q", asks, why)
	}
}
