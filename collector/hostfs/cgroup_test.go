package hostfs

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
)

const (
	uid    = "0f6d5b2e-7c1a-4e0b-9a53-2f1c8e4d7b60"
	uidLow = "0f6d5b2e_7c1a_4e0b_9a53_2f1c8e4d7b60"
	static = "4a8cbd9b3a5f0e0d6c7b1f2e3d4c5b6a" // kubelet's hash of a manifest
	idA    = "4c01db0b339c5a8f2ab62b4cd8d1a1f0a2d2e0a7a4f1c9b96ed8c1b7c3f0e2d5"
	idB    = "b0a1c2d3e4f5061728394a5b6c7d8e9fb0a1c2d3e4f5061728394a5b6c7d8e9f"

	burstable = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uidLow + ".slice"
)

func inPod(id, runtime, qos string) Attribution {
	return Attribution{Container: event.Container{ID: id, Runtime: runtime, PodUID: uid, QoS: qos}}
}

func plain(id, runtime string) Attribution {
	return Attribution{Container: event.Container{ID: id, Runtime: runtime}}
}

func unit(s string) Attribution { return Attribution{Unit: s} }

var cgroupPaths = []struct {
	name, path string
	want       Attribution // zero: no owner
}{
	// systemd driver
	{"containerd", burstable + "/cri-containerd-" + idA + ".scope", inPod(idA, "containerd", "burstable")},
	{"cri-o", burstable + "/crio-" + idA + ".scope", inPod(idA, "cri-o", "burstable")},
	{"cri-o, crun's child", burstable + "/crio-" + idA + ".scope/container", inPod(idA, "cri-o", "burstable")},
	{"cri-o conmon", burstable + "/crio-conmon-" + idA + ".scope", inPod(idA, "cri-o", "burstable")},
	{"cri-dockerd", burstable + "/docker-" + idA + ".scope", inPod(idA, "docker", "burstable")},
	{"a runtime nobody knows", burstable + "/cri-new-" + idA + ".scope", inPod(idA, "", "burstable")},
	{"besteffort", "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + uidLow + ".slice/crio-" + idA + ".scope",
		inPod(idA, "cri-o", "besteffort")},
	{"guaranteed has no level", "/kubepods.slice/kubepods-pod" + uidLow + ".slice/cri-containerd-" + idA + ".scope",
		inPod(idA, "containerd", "guaranteed")},
	{"static pod", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + static + ".slice/cri-containerd-" + idA + ".scope",
		Attribution{Container: event.Container{ID: idA, Runtime: "containerd", PodUID: static, QoS: "burstable"}}},
	{"pod itself", burstable, inPod("", "", "burstable")},
	{"systemd in the pod", burstable + "/cri-containerd-" + idA + ".scope/init.scope", inPod(idA, "containerd", "burstable")},
	{"service in the pod", burstable + "/cri-containerd-" + idA + ".scope/system.slice/foo.service", inPod(idA, "containerd", "burstable")},
	{"docker in the pod", burstable + "/cri-containerd-" + idA + ".scope/docker/" + idB, inPod(idA, "containerd", "burstable")},
	{"runc without systemd", "/system.slice/containerd.service/kubepods-burstable-pod" + uidLow + ".slice:cri-containerd:" + idA,
		inPod(idA, "containerd", "burstable")},
	{"runc without systemd, id cut", "/system.slice/containerd.service/kubepods-burstable-pod" + uidLow + ".slice:cri-containerd:" + idA[:15] + "/docker/" + idB,
		inPod("", "", "burstable")},
	{"kubepods alone", "/kubepods.slice/kubepods-burstable.slice", Attribution{}},

	// cgroupfs driver
	{"cgroupfs", "/kubepods/burstable/pod" + uid + "/" + idA, inPod(idA, "", "burstable")},
	{"cgroupfs guaranteed", "/kubepods/pod" + uid + "/" + idA, inPod(idA, "", "guaranteed")},
	{"cgroupfs cri-o", "/kubepods/besteffort/pod" + uid + "/crio-" + idA, inPod(idA, "cri-o", "besteffort")},
	{"cgroupfs static", "/kubepods/burstable/pod" + static + "/" + idA,
		Attribution{Container: event.Container{ID: idA, PodUID: static, QoS: "burstable"}}},
	{"cgroupfs pod itself", "/kubepods/pod" + uid, inPod("", "", "guaranteed")},
	{"cgroupfs deeper", "/kubepods/pod" + uid + "/" + idA + "/a/b/c.service", inPod(idA, "", "guaranteed")},

	// Kubernetes in a container
	{"cgroup root", "/kubelet/kubepods/burstable/pod" + uid + "/" + idA, inPod(idA, "", "burstable")},
	{"kind, cgroupfs", "/docker/" + idB + "/kubelet/kubepods/burstable/pod" + uid + "/" + idA, inPod(idA, "", "burstable")},
	{"kind, systemd", "/system.slice/docker-" + idB + ".scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/" +
		"kubelet-kubepods-burstable-pod" + uidLow + ".slice/cri-containerd-" + idA + ".scope", inPod(idA, "containerd", "burstable")},
	{"kind's kubelet", "/docker/" + idB + "/kubelet.slice/kubelet.service", plain(idB, "docker")},
	{"kind's kubepods", "/docker/" + idB + "/kubelet/kubepods", plain(idB, "docker")},
	{"kind in a pod", "/kubepods/pod11111111-2222-3333-4444-555555555555/" + idB + "/docker/" + idB +
		"/kubelet/kubepods/besteffort/pod" + uid + "/" + idA, inPod(idA, "", "besteffort")},

	// containers outside Kubernetes
	{"docker, cgroupfs", "/docker/" + idA, plain(idA, "docker")},
	{"docker, systemd", "/system.slice/docker-" + idA + ".scope", plain(idA, "docker")},
	{"docker in docker", "/docker/" + idA + "/docker/" + idB, plain(idA, "docker")},
	{"podman", "/machine.slice/libpod-" + idA + ".scope/container", plain(idA, "podman")},
	{"podman pod", "/machine.slice/machine-libpod_pod_" + idB + ".slice/libpod-" + idA + ".scope", plain(idA, "podman")},
	{"podman conmon", "/machine.slice/libpod-conmon-" + idA + ".scope", plain(idA, "podman")},
	{"rootless podman", "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + idA + ".scope", plain(idA, "podman")},
	{"podman, cgroupfs", "/libpod_parent/libpod-" + idA, plain(idA, "podman")},
	{"nerdctl", "/system.slice/nerdctl-" + idA + ".scope", plain(idA, "containerd")},
	{"containerd namespace", "/default/" + idA, plain(idA, "")},

	// the top is missing
	{"cut above the slice", "…/kubepods-burstable-pod" + uidLow + ".slice/cri-containerd-" + idA + ".scope", inPod(idA, "containerd", "burstable")},
	{"cut above the pod", "…/pod" + uid + "/" + idA + "/a/b", inPod(idA, "", "")},
	{"cut above the QoS", "…/besteffort/pod" + uid + "/" + idA, inPod(idA, "", "besteffort")},
	{"cut above the container", "…/cri-containerd-" + idA + ".scope/init.scope", plain(idA, "containerd")},
	{"cut below the container", "…/system.slice/foo.service/x", unit("foo.service")},

	// systemd units
	{"service", "/system.slice/nginx.service", unit("nginx.service")},
	{"delegated", "/system.slice/nginx.service/workers/3", unit("nginx.service")},
	{"template", "/system.slice/system-getty.slice/getty@tty1.service", unit("getty@tty1.service")},
	{"user", "/user.slice/user-1000.slice/user@1000.service/app.slice/app-foo.scope", unit("app-foo.scope")},
	{"user manager", "/user.slice/user-1000.slice/user@1000.service/init.scope", unit("user@1000.service")},
	{"session", "/user.slice/user-0.slice/session-3.scope", unit("session-3.scope")},
	{"escaped", `/user.slice/user@1000.service/app.slice/app-org.x\x2dterm-7.scope`, unit("app-org.x-term-7.scope")},
	{"escaped nonsense", `/system.slice/a\xzz\x2.service`, unit(`a\xzz\x2.service`)},
	{"escaped control", `/system.slice/a\x1b\x0a.service`, unit(`a\x1b\n.service`)},
	{"cgroup-escaped", "/system.slice/_cpu.service", unit("cpu.service")},
	{"colons", "/user.slice/user@1000.service/dbus-:1.2-org.a@0.service", unit("dbus-:1.2-org.a@0.service")},
	{"runtime's own service", "/system.slice/containerd.service", unit("containerd.service")},

	// nothing
	{"pid 1", "/init.scope", Attribution{}},
	{"root", "/", Attribution{}},
	{"empty", "", Attribution{}},
	{"slice", "/system.slice", Attribution{}},
	{"only a suffix", "/.service", Attribution{}},
	{"mount", "/system.slice/dev-hugepages.mount", Attribution{}},

	// almost
	{"id too short", burstable + "/cri-containerd-" + idA[1:] + ".scope", inPod("", "", "burstable")},
	{"id in capitals", "/docker/" + strings.ToUpper(idA), Attribution{}},
	{"uid too short", "/kubepods/burstable/pod" + uid[1:] + "/x", Attribution{}},
	{"uid with wrong separators", "/kubepods/burstable/pod" + uidLow + "/x", Attribution{}},
	{"uid not hex", "/kubepods/pod" + strings.Replace(uid, "f", "g", 1), Attribution{}},
	{"pod of nobody", "/burstable/pod" + uid, Attribution{}},
	{"not kubepods", "/mykubepods-burstable-pod" + uidLow + ".slice", Attribution{}},
	{"runtime unknown outside pods", "/system.slice/foo-" + idA + ".scope", unit("foo-" + idA + ".scope")},
}

func TestParseCgroupPath(t *testing.T) {
	for _, tt := range cgroupPaths {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := ParseCgroupPath(tt.path)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("ParseCgroupPath(%q) (-want +got):\n%s", tt.path, diff)
			}
			if want := tt.want != (Attribution{}); ok != want {
				t.Errorf("ParseCgroupPath(%q) ok = %t", tt.path, ok)
			}
		})
	}
}

// Of a path longer than any the kernel shows, only the allowed length is parsed.
func TestParseCgroupPathBounds(t *testing.T) {
	long := strings.Repeat("/a", 10_000)
	if got, ok := ParseCgroupPath("/docker/" + idA + long); !ok || got.Container.ID != idA {
		t.Errorf("container above a long tail: %+v", got)
	}
	if got, ok := ParseCgroupPath(long + "/docker/" + idA); ok {
		t.Errorf("container below a long head: %+v", got)
	}
	slashes := strings.Repeat("/", 4000)
	if got, ok := ParseCgroupPath(slashes + "docker" + "//" + idA); !ok || got.Container.Runtime != "docker" {
		t.Errorf("slashes: %+v", got)
	}
	// A truncated name must not count as a whole one.
	head := "/" + strings.Repeat("x", maxCgroupPath-2-len("foo.service"))
	if got, ok := ParseCgroupPath(head + "/foo.servicex"); ok {
		t.Errorf("half a name: %+v", got)
	}
}

func FuzzParseCgroupPath(f *testing.F) {
	for _, tt := range cgroupPaths {
		f.Add(tt.path)
	}
	f.Add(strings.Repeat("/\xff\x1b", 3000))
	f.Fuzz(func(t *testing.T, path string) {
		a, ok := ParseCgroupPath(path)
		c := a.Container
		if ok != (a != Attribution{}) {
			t.Errorf("ok = %t of %+v", ok, a)
		}
		if c.ID != "" && !isContainerID(c.ID) || c.ID == "" && c.Runtime != "" {
			t.Errorf("container id %+v", c)
		}
		if c.PodUID != "" && !isPodUID(c.PodUID, '-') {
			t.Errorf("pod uid %q", c.PodUID)
		}
		switch c.QoS {
		case "", "guaranteed", "burstable", "besteffort":
		default:
			t.Errorf("qos %q", c.QoS)
		}
		if c != (event.Container{}) && a.Unit != "" {
			t.Errorf("both container and unit: %+v", a)
		}
		if !utf8.ValidString(a.Unit) || display.Safe(a.Unit, 1<<20) != a.Unit || len(a.Unit) > 4*maxUnitName {
			t.Errorf("unit %q is not safe", a.Unit)
		}
	})
}

func BenchmarkParseCgroupPath(b *testing.B) {
	path := "/kubepods/burstable/pod" + uid + "/" + idA
	b.ReportAllocs()
	for b.Loop() {
		ParseCgroupPath(path)
	}
}
