package tenancy_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/tenancy"
)

func TestPodOf(t *testing.T) {
	id := strings.Repeat("a", 64)
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID = "shop", "web-0", ownUID
	p.Spec.NodeName = "n7"
	p.Spec.Containers = []corev1.Container{{Name: "main"}, {Name: "late"}}
	p.Status.PodIP = "10.1.2.3"
	p.Status.PodIPs = []corev1.PodIP{{IP: "10.1.2.3"}, {IP: "fd00::3"}, {IP: "none"}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://" + id}}
	want := tenancy.Pod{
		Namespace: "shop", Name: "web-0", UID: ownUID, Node: "n7",
		Addresses: []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::3")},
	}
	equal := func(ref *v1alpha1.PodReference) {
		t.Helper()
		got, err := tenancy.PodOf(p, ref)
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	}
	equal(nil)
	want.Container, want.ContainerID = "main", id
	equal(&v1alpha1.PodReference{Name: "web-0", Container: "main"})
	want.Container, want.ContainerID = "late", ""
	equal(&v1alpha1.PodReference{Name: "web-0", Container: "late"})
	if _, err := tenancy.PodOf(p, &v1alpha1.PodReference{Name: "web-0", Container: "none"}); err == nil {
		t.Error("a container that the pod does not have")
	}
	// The creator of a pod can claim that it mirrors any pod. Kubelet reports the static pods
	// themselves.
	for _, static := range []map[string]string{
		{corev1.MirrorPodAnnotationKey: others}, {corev1.MirrorPodAnnotationKey: others, "kubernetes.io/config.source": "api"}, {"kubernetes.io/config.source": "file"},
	} {
		p.Annotations = static
		if got, err := tenancy.PodOf(p, nil); err == nil || got.UID == others {
			t.Errorf("%v: %+v, %v", static, got, err)
		} else if _, ok := errors.AsType[tenancy.Refusals](err); !ok {
			t.Errorf("%T: %v", err, err)
		}
	}
	p.Annotations = map[string]string{"kubernetes.io/config.source": "api"} // as kubelet reports other pods
	if _, err := tenancy.PodOf(p, nil); err != nil {
		t.Error(err)
	}
}
