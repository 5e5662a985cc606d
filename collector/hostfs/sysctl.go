package hostfs

import (
	"fmt"
	"strings"
)

// Sysctl returns the value of a kernel parameter ("kernel.hung_task_timeout_secs",
// or with slashes where a part has dots in it: "net/ipv4/conf/eth0.1/rp_filter").
func (f FS) Sysctl(name string) (string, error) {
	path := name
	if !strings.Contains(name, "/") {
		path = strings.ReplaceAll(name, ".", "/")
	}
	path, err := below(path)
	if err != nil || path == "/" {
		return "", fmt.Errorf("sysctl %q: %w", name, ErrPath)
	}
	v, err := f.readValue("/proc/sys" + path)
	if err != nil {
		return "", fmt.Errorf("sysctl %s: %w", name, err)
	}
	return v, nil
}

// LockedDown reports whether the kernel is in lockdown mode "confidentiality", which prevents
// tracing programs from reading kernel memory.
func (f FS) LockedDown() bool {
	s, err := f.readValue("/sys/kernel/security/lockdown")
	return err == nil && strings.Contains(s, "[confidentiality]")
}
