package pods

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hashLen is the length of a manifest's hash, in hex digits.
const hashLen = 32

// Hash returns the UID of the static pod that a mirror pod stands for; empty if the pod is not a
// mirror.
//
// Anyone who may create a pod with spec.nodeName can set the mirror annotation. So Hash requires
// the form of a hash, because other forms may be another pod's UID. It also requires a Node as
// owner, because kubelet's mirror pods have one. Someone who knows the hash of a static pod can
// still claim it; [Precedes] decides between such pods.
func Hash(m *metav1.ObjectMeta) string {
	hash := m.Annotations[corev1.MirrorPodAnnotationKey]
	if len(hash) != hashLen || strings.Trim(hash, "0123456789abcdef") != "" || !ofNode(m) {
		return ""
	}
	return hash
}

// sourceKey is the annotation in which kubelet records where it got a pod from. kubelet
// overwrites any value of the pod's own. The annotation is not in the API.
const sourceKey = "kubernetes.io/config.source"

// IsStatic reports whether a pod from kubelet is static, or a pod from the API claims to mirror a
// static pod.
func IsStatic(m *metav1.ObjectMeta) bool {
	_, mirrors := m.Annotations[corev1.MirrorPodAnnotationKey]
	source, reported := m.Annotations[sourceKey]
	return mirrors || reported && source != "api"
}

// ofNode reports whether a Node owns the object.
func ofNode(m *metav1.ObjectMeta) bool {
	return len(m.OwnerReferences) == 1 && m.OwnerReferences[0].Kind == "Node" && m.OwnerReferences[0].APIVersion == "v1"
}

// UID returns the UID that kubelet's cgroups and Events use for a pod.
func UID(m *metav1.ObjectMeta) string {
	if hash := Hash(m); hash != "" {
		return hash
	}
	return string(m.UID)
}

// UIDs returns all UIDs by which a pod may be looked up, its own first.
func UIDs(m *metav1.ObjectMeta) []string {
	uids := []string{string(m.UID)}
	if h := Hash(m); h != "" {
		uids = append(uids, h)
	}
	last := uids[len(uids)-1]
	if d := Dashed(last); d != last {
		uids = append(uids, d)
	}
	return uids
}

// Precedes reports whether uid refers to the pod m rather than to other. The pod that has this
// UID itself comes first, then pods that claim to mirror a static pod with it, the oldest first.
func Precedes(m, other *metav1.ObjectMeta, uid string) bool {
	if own, others := string(m.UID) == uid, string(other.UID) == uid; own != others {
		return own
	}
	return m.CreationTimestamp.Before(&other.CreationTimestamp)
}

// Dashed returns a hash with the dashes of a UID, which is how programs that parse cgroup names
// write it. It returns any other UID unchanged.
func Dashed(uid string) string {
	if len(uid) != hashLen {
		return uid
	}
	return uid[:8] + "-" + uid[8:12] + "-" + uid[12:16] + "-" + uid[16:20] + "-" + uid[20:]
}
