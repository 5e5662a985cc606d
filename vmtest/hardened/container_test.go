package hardened_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// asContainer is the environment variable that makes this program run kernosis, with its arguments,
// in the agent's container of the hardened profile.
const asContainer = "KERNOSIS_TEST_CONTAINER"

// runContainer replaces this process by kernosis in a container, set up from the pod as kubelet and
// containerd do it.
func runContainer(args []string) error {
	pod, err := hardenedPod()
	if err != nil {
		return err
	}
	bundle, err := os.MkdirTemp("", "kernosis-bundle-")
	if err != nil {
		return err
	}
	spec, err := specOf(pod, bundle, append([]string{"/kernosis"}, args...))
	if err != nil {
		return err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := errors.Join(
		os.Mkdir(filepath.Join(bundle, "rootfs"), 0o755),
		os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600),
	); err != nil {
		return err
	}
	runc, err := sealedCopy("runc")
	if err != nil {
		return err
	}
	// The machine's root is its initramfs, which pivot_root does not support.
	argv := []string{"runc", "--root", "/run/runc", "run", "--no-pivot", "--bundle", bundle, "agent-" + strconv.Itoa(os.Getpid())}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, asContainer+"=") })
	return syscall.Exec(runc, argv, env) //nolint:gosec // the test's own program
}

// sealedCopy returns the path of a sealed in-memory copy of a program. runc normally creates such a
// copy of itself at its start, but not if it is on a tmpfs like the machine's root: files there can
// have seals, which runc mistakes for those of the copy.
func sealedCopy(program string) (path string, err error) {
	from, err := exec.LookPath(program)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return "", err
	}
	fd, err := unix.MemfdCreate(program, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return "", err
	}
	if _, err := unix.Write(fd, text); err != nil { // memory: never a short write
		return "", err
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	return fmt.Sprintf("/proc/self/fd/%d", fd), err
}

// hardenedPod returns the agent's pod as the chart renders it for the hardened profile, taken from
// the kustomize overlay, which a test of deploy/chart compares with the chart.
func hardenedPod() (*corev1.PodSpec, error) {
	text, err := os.ReadFile("../../deploy/kustomize/hardened/kustomization.yaml")
	if err != nil {
		return nil, err
	}
	var overlay struct{ Patches []struct{ Patch string } }
	if err := yaml.Unmarshal(text, &overlay); err != nil {
		return nil, err
	}
	for _, p := range overlay.Patches {
		var ops []struct {
			Path  string
			Value appsv1.DaemonSetSpec
		}
		if err := yaml.Unmarshal([]byte(p.Patch), &ops); err != nil {
			return nil, err
		}
		for _, op := range ops {
			if pod := op.Value.Template.Spec; op.Path == "/spec" && len(pod.Containers) == 1 {
				return &pod, nil
			}
		}
	}
	return nil, errors.New("the overlay has no DaemonSet with one container")
}

// seccompProfile is the content of testdata/seccomp.json: the profile that containerd generates for
// a container with these capabilities.
type seccompProfile struct {
	Capabilities []corev1.Capability
	Profile      map[string]any
}

func readSeccomp() (p seccompProfile, err error) {
	text, err := os.ReadFile("testdata/seccomp.json")
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(text, &p)
}

// specOf returns an OCI runtime configuration for the pod's container.
func specOf(pod *corev1.PodSpec, bundle string, args []string) (map[string]any, error) {
	c := pod.Containers[0]
	ctx := c.SecurityContext
	if ctx.Privileged == nil || *ctx.Privileged || !slices.Equal(ctx.Capabilities.Drop, []corev1.Capability{"ALL"}) || ctx.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		return nil, fmt.Errorf("this is not hardened: %+v", ctx)
	}
	seccomp, err := readSeccomp()
	if err != nil {
		return nil, err
	}
	var caps []string
	for _, name := range ctx.Capabilities.Add {
		caps = append(caps, "CAP_"+string(name))
	}
	mounts, err := mountsOf(pod, bundle)
	if err != nil {
		return nil, err
	}
	// On cgroup v2 an unprivileged container gets its own cgroup namespace.
	namespaces := []map[string]any{{"type": "mount"}, {"type": "ipc"}, {"type": "cgroup"}}
	if !pod.HostPID {
		namespaces = append(namespaces, map[string]any{"type": "pid"})
	}
	if !pod.HostNetwork {
		namespaces = append(namespaces, map[string]any{"type": "network"}, map[string]any{"type": "uts"})
	}
	return map[string]any{
		"ociVersion": "1.0.2",
		"root":       map[string]any{"path": "rootfs", "readonly": *ctx.ReadOnlyRootFilesystem},
		"process": map[string]any{
			"user":            map[string]any{"uid": *ctx.RunAsUser, "gid": *ctx.RunAsGroup},
			"args":            args,
			"env":             []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
			"cwd":             "/",
			"noNewPrivileges": !*ctx.AllowPrivilegeEscalation,
			"capabilities":    map[string]any{"bounding": caps, "effective": caps, "permitted": caps},
		},
		"mounts": mounts,
		"linux": map[string]any{
			"cgroupsPath":       fmt.Sprintf("/kubepods/burstable/pod%s/%064x", agentUID, os.Getpid()),
			"namespaces":        namespaces,
			"rootfsPropagation": "rslave",
			"seccomp":           seccomp.Profile,
			"resources": map[string]any{
				"memory":  map[string]any{"limit": c.Resources.Limits.Memory().Value()},
				"devices": []map[string]any{{"allow": false, "access": "rwm"}},
			},
			"maskedPaths": []string{
				"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats",
				"/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
			},
			"readonlyPaths": []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}, nil
}

// agentUID is the UID of the agent's pod.
const agentUID = "11111111-2222-4333-8444-555555555555"

// mountsOf returns the default mounts of containers and those of the pod's volumes except its
// ConfigMap: the tests' settings are in the state folder.
func mountsOf(pod *corev1.PodSpec, bundle string) ([]map[string]any, error) {
	program, err := filepath.Abs("../../bin/kernosis")
	if err != nil {
		return nil, err
	}
	mounts := []map[string]any{
		{"destination": "/proc", "type": "proc", "source": "proc", "options": []string{"nosuid", "noexec", "nodev"}},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": []string{"nosuid", "noexec", "nodev", "ro"}},
		{"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
		{"destination": "/kernosis", "type": "bind", "source": program, "options": []string{"bind", "ro"}},
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 {
			return nil, fmt.Errorf("no volume %s", m.Name)
		}
		options := []string{"rbind", "rprivate"}
		if m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationHostToContainer {
			options[1] = "rslave"
		}
		if m.ReadOnly {
			options = append(options, "ro")
		}
		var source string
		switch v := pod.Volumes[i]; {
		case v.ConfigMap != nil:
			continue
		case v.EmptyDir != nil:
			source = filepath.Join(bundle, v.Name)
		case v.HostPath != nil:
			source = v.HostPath.Path
		default:
			return nil, fmt.Errorf("volume %s is of a kind that no test mounts", v.Name)
		}
		if _, err := os.Stat(source); errors.Is(err, os.ErrNotExist) {
			err = os.MkdirAll(source, 0o755)
			if err != nil {
				return nil, err
			}
		}
		mounts = append(mounts, map[string]any{"destination": m.MountPath, "type": "bind", "source": source, "options": options})
	}
	return mounts, nil
}
