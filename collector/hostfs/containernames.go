package hostfs

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
)

// maxBundle bounds a container's config.json, in bytes. Real ones have some 10 KiB.
const maxBundle = 1 << 20

// bundles returns the folders in which containerd, k3s's containerd and CRI-O keep the
// configuration of a running container, as the parts before and after its id.
func bundles() [][2]string {
	return [][2]string{
		{"/run/containerd/io.containerd.runtime.v2.task/k8s.io", ""},
		{"/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io", ""},
		{"/run/containers/storage/overlay-containers", "userdata"},
	}
}

// NameContainer adds the names of a container and its pod, as kubelet gave them to the runtime. It
// leaves them empty if no known runtime has them: outside Kubernetes, or if the agent has no access
// to /run. The folder of a terminated container may be gone.
func (f FS) NameContainer(c *event.Container) {
	if c.ID == "" || c.PodUID == "" || filepath.Base(c.ID) != c.ID {
		return
	}
	for _, dir := range bundles() {
		file, err := os.Open(f.Path(filepath.Join(dir[0], c.ID, dir[1], "config.json")))
		if err != nil {
			continue
		}
		var config struct {
			Annotations map[string]string `json:"annotations"`
		}
		err = json.NewDecoder(io.LimitReader(file, maxBundle)).Decode(&config)
		if file.Close() != nil || err != nil {
			continue
		}
		name := func(keys ...string) string {
			for _, key := range keys {
				if text := config.Annotations[key]; text != "" {
					return display.Safe(text, 253)
				}
			}
			return ""
		}
		c.Name = name("io.kubernetes.cri.container-name", "io.kubernetes.container.name")
		c.PodName = name("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name")
		c.PodNamespace = name("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace")
		return
	}
}
