package tenancy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Pod is the pod that a Diagnosis is about, as reported by the API server or kubelet.
type Pod struct {
	Namespace, Name string
	UID             string
	Node            string // where it runs; "": nowhere yet
	Addresses       []netip.Addr
	Container       string // the container that the Diagnosis names, if any
	ContainerID     string // its id in the runtime, without scheme; "": it has none yet
}

// PodOf returns the Pod, and the container that a reference names.
//
// It refuses static pods and pods that claim to mirror one, as [Refusals]. The cgroups of mirror
// pods are found by the UID in an annotation. Anybody who creates a pod with spec.nodeName can
// set this annotation to another pod's UID, and operations would examine that pod.
func PodOf(p *corev1.Pod, ref *v1alpha1.PodReference) (Pod, error) {
	out := Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Node: p.Spec.NodeName}
	if pods.IsStatic(&p.ObjectMeta) {
		return out, Refusals{fmt.Sprintf("pod %s/%s is a static pod: it can't be diagnosed outside the system namespace", p.Namespace, p.Name)}
	}
	for _, ip := range append([]corev1.PodIP{{IP: p.Status.PodIP}}, p.Status.PodIPs...) {
		if a, err := netip.ParseAddr(ip.IP); err == nil && !slices.Contains(out.Addresses, a.Unmap()) {
			out.Addresses = append(out.Addresses, a.Unmap())
		}
	}
	if ref == nil || ref.Container == "" {
		return out, nil
	}
	out.Container = ref.Container
	if !slices.Contains(containers(p), ref.Container) {
		return out, fmt.Errorf("pod %s/%s has no container %s", p.Namespace, p.Name, shown(ref.Container))
	}
	for _, s := range slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses) {
		if s.Name == ref.Container {
			_, id, _ := strings.Cut(s.ContainerID, "://")
			out.ContainerID = id
		}
	}
	return out, nil
}

func containers(p *corev1.Pod) []string {
	var names []string
	for i := range p.Spec.Containers {
		names = append(names, p.Spec.Containers[i].Name)
	}
	for i := range p.Spec.InitContainers {
		names = append(names, p.Spec.InitContainers[i].Name)
	}
	for i := range p.Spec.EphemeralContainers {
		names = append(names, p.Spec.EphemeralContainers[i].Name)
	}
	return names
}
