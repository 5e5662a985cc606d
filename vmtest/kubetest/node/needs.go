package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/vmtest/kubetest/process"
)

// packages lists the Debian packages that contain what a node needs.
const packages = "containerd runc containernetworking-plugins"

// pluginDirs returns the folders where the network plugins may be.
func pluginDirs() []string { return []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"} }

// installed returns the folder of the network plugins, or an error that names what is missing.
func installed() (plugins string, err error) {
	var missing []error
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc"} {
		if _, err := process.Find(name); err != nil {
			missing = append(missing, err)
		}
	}
	i := slices.IndexFunc(pluginDirs(), func(dir string) bool {
		for _, name := range []string{"bridge", "host-local", "loopback"} {
			if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
				return false
			}
		}
		return true
	})
	if i < 0 {
		missing = append(missing, fmt.Errorf("no network plugins in %s", strings.Join(pluginDirs(), ", ")))
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("install %s (make node-packages): %w", packages, errors.Join(missing...))
	}
	return pluginDirs()[i], nil
}

// Need skips a test without root, which namespaces, cgroups and containers require.
func Need(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("needs root: runs a node with containers")
	}
}
