package hostfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/collector/event"
)

func TestNameContainer(t *testing.T) {
	const (
		containerd = `{"ociVersion": "1.2.0", "annotations": {"io.kubernetes.cri.container-name": "app", "io.kubernetes.cri.sandbox-name": "web-0", "io.kubernetes.cri.sandbox-namespace": "shop"}}`
		crio       = `{"annotations": {"io.kubernetes.container.name": "app", "io.kubernetes.pod.name": "web-0", "io.kubernetes.pod.namespace": "shop"}}`
	)
	named := event.Container{ID: "c1", PodUID: "u", Name: "app", PodName: "web-0", PodNamespace: "shop"}
	bare := event.Container{ID: "c1", PodUID: "u"}
	for name, tt := range map[string]struct {
		path, text string
		of, want   event.Container
	}{
		"containerd":         {"run/containerd/io.containerd.runtime.v2.task/k8s.io/c1/config.json", containerd, bare, named},
		"k3s":                {"run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/c1/config.json", containerd, bare, named},
		"CRI-O":              {"run/containers/storage/overlay-containers/c1/userdata/config.json", crio, bare, named},
		"another container":  {"run/containerd/io.containerd.runtime.v2.task/k8s.io/c2/config.json", containerd, bare, bare},
		"a pod's group":      {"run/containerd/io.containerd.runtime.v2.task/k8s.io/config.json", containerd, event.Container{PodUID: "u"}, event.Container{PodUID: "u"}},
		"outside Kubernetes": {"run/containerd/io.containerd.runtime.v2.task/k8s.io/c1/config.json", containerd, event.Container{ID: "c1"}, event.Container{ID: "c1"}},
		"no names":           {"run/containerd/io.containerd.runtime.v2.task/k8s.io/c1/config.json", `{"annotations": null}`, bare, bare},
		"no JSON":            {"run/containerd/io.containerd.runtime.v2.task/k8s.io/c1/config.json", "x", bare, bare},
		"huge":               {"run/containerd/io.containerd.runtime.v2.task/k8s.io/c1/config.json", `{"x": "` + strings.Repeat("x", maxBundle) + `", "annotations": {"io.kubernetes.container.name": "app"}}`, bare, bare},
		"terminal escapes": {
			"run/containers/storage/overlay-containers/c1/userdata/config.json", `{"annotations": {"io.kubernetes.container.name": "a\u001bb"}}`,
			bare, event.Container{ID: "c1", PodUID: "u", Name: `a\x1bb`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, tt.path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			c := tt.of
			if New(root).NameContainer(&c); c != tt.want {
				t.Errorf("%+v, want %+v", c, tt.want)
			}
		})
	}
	c := event.Container{ID: "../c1", PodUID: "u"}
	if New(t.TempDir()).NameContainer(&c); c.Name != "" {
		t.Errorf("%+v", c)
	}
}
