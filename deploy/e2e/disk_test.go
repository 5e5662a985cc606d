package e2e_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/kubetest/node"
	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
)

// volume mounts a device in the node, as kubelet would mount a volume, and returns a pod that has
// it at /data. leave deletes the pod and unmounts the device; otherwise the end of the test or of
// the node does.
func (c *cluster) volume(t *testing.T, name, device string) (pod *corev1.Pod, leave func()) {
	t.Helper()
	// Below a folder that is private to the node.
	at := filepath.Join("/var/lib/kubelet", "e2e-"+name)
	if err := c.In(func() error {
		return errors.Join(os.MkdirAll(at, 0o755), unix.Mount(device, at, "ext4", unix.MS_NOATIME|unix.MS_NODEV|unix.MS_NOSUID, ""))
	}); err != nil {
		t.Fatal(err)
	}
	unmount := sync.OnceFunc(func() {
		if err := c.In(func() error { return unix.Unmount(at, 0) }); err != nil {
			t.Errorf("unmount %s: %v", at, err)
		}
	})
	t.Cleanup(unmount) // after the pod has ended
	pod = node.FaultPod(c.pods, name, fault.None, false)
	kind := corev1.HostPathDirectory
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: at, Type: &kind}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	pod = c.Run(t, pod)
	return pod, func() {
		c.Delete(t, pod)
		unmount()
	}
}

// diskFails checks a pod whose reads from its volume fail.
func (c *cluster) diskFails(t *testing.T, with profile) {
	t.Parallel()
	disk := &inject.DiskError{Kind: inject.DiskRead, StateDir: t.TempDir(), Limit: 5 * time.Minute}
	agenttest.Injected(t, disk.Start(t.Context()))
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	device, _ := disk.Device()
	pod, _ := c.volume(t, "reads", "/dev/"+device)
	for page := range 6 {
		if said, err := c.File(t.Context(), pod, "/data/data", page, false); err != nil || said != "EIO" {
			t.Fatalf("read: %q, %v", said, err)
		}
	}
	c.reported(t, pod, "DiskIOError", 1, "read of 4 KiB", "ended with EIO")
	c.onNode(t, "DiskIOError", pod.Name)
	c.condition(t, "DiskUnhealthy", corev1.ConditionTrue, 30*time.Second)
	if with.diskWhy != "" {
		c.diagnosed(t, "disk-error", device, with.diskWhy)
	}
	if err := disk.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if said, err := c.File(t.Context(), pod, "/data/data", 0, false); err != nil || said != "ok" {
		t.Fatalf("read: %q, %v", said, err)
	}
	c.over(t, "DiskUnhealthy", with)
}

// refusesWrites checks a pod whose volume's filesystem has an error and becomes read-only.
func (c *cluster) refusesWrites(t *testing.T, with profile) {
	t.Parallel()
	broken := &inject.ReadonlyFS{StateDir: t.TempDir(), Limit: 5 * time.Minute}
	agenttest.Injected(t, broken.Start(t.Context()))
	t.Cleanup(func() {
		if err := broken.Close(); err != nil {
			t.Error(err)
		}
	})
	device, dir := broken.Mount()
	pod, leave := c.volume(t, "writes", device)
	if said, err := c.File(t.Context(), pod, "/data/other", 0, true); err != nil || said != "EROFS" && said != "EIO" {
		t.Errorf("write: %q, %v", said, err)
	}
	c.onNode(t, "FilesystemError", filepath.Base(device))
	is := c.condition(t, "ReadonlyFilesystem", corev1.ConditionTrue, 30*time.Second)
	t.Logf("%s: %s (mounted at %s)", is.Reason, is.Message, dir)
	leave()
	if _, err := broken.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.over(t, "ReadonlyFilesystem", with)
}
