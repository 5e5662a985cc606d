package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hashLen is the length of a manifest's hash, in hex digits.
const hashLen = 32

// Hash returns the UID of the static pod that an object mirrors; empty: it mirrors none.
//
// Anybody who makes a pod with spec.nodeName can write the annotation that says so. What has
// not the form of a hash is another pod's UID, and a mirror that kubelet has made belongs to its
// Node. Whoever knows the hash of a static pod can still claim it: [Precedes] says whose it is.
func Hash(m *metav1.ObjectMeta) string {
	hash := m.Annotations[corev1.MirrorPodAnnotationKey]
	if len(hash) != hashLen || strings.Trim(hash, "0123456789abcdef") != "" || !ofNode(m) {
		return ""
	}
	return hash
}

// sourceKey is the annotation in which kubelet says where it has a pod from, whatever the pod
// brought there itself; it is not in the API.
const sourceKey = "kubernetes.io/config.source"

// Is reports whether a pod is static, as kubelet has it, or says that it mirrors a static pod, as
// the API has it.
func Is(m *metav1.ObjectMeta) bool {
	_, mirrors := m.Annotations[corev1.MirrorPodAnnotationKey]
	source, reported := m.Annotations[sourceKey]
	return mirrors || reported && source != "api"
}

// ofNode reports whether a Node owns the object.
func ofNode(m *metav1.ObjectMeta) bool {
	return len(m.OwnerReferences) == 1 && m.OwnerReferences[0].Kind == "Node" && m.OwnerReferences[0].APIVersion == "v1"
}

// UID returns the one by which kubelet's control groups and Events name a pod.
func UID(m *metav1.ObjectMeta) string {
	if hash := Hash(m); hash != "" {
		return hash
	}
	return string(m.UID)
}

// UIDs returns all under which a pod may be asked for, its own first.
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

// Precedes reports whether a UID is a pod's rather than another's: of the one that has it itself,
// before those that claim to mirror a static pod of that UID, and of these the oldest.
func Precedes(m, other *metav1.ObjectMeta, uid string) bool {
	if own, others := string(m.UID) == uid, string(other.UID) == uid; own != others {
		return own
	}
	return m.CreationTimestamp.Before(&other.CreationTimestamp)
}

// Dashed returns a hash with dashes as a UID's, where readers of control groups put them in; any
// other UID as it is.
func Dashed(uid string) string {
	if len(uid) != hashLen {
		return uid
	}
	return uid[:8] + "-" + uid[8:12] + "-" + uid[12:16] + "-" + uid[16:20] + "-" + uid[20:]
}
