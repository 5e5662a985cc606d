package pods

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestUIDs(t *testing.T) {
	const own, hash, dashed = "6a1f2c7e-8b1a-4d60-9c55-0d4c8f2b7a11", "b1946ac92492d2347c6235b4d2611184", "b1946ac9-2492-d234-7c62-35b4d2611184"
	node := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n1"}
	for name, c := range map[string]struct {
		claim  string
		owners []metav1.OwnerReference
		want   []string
	}{
		"a pod":                       {want: []string{own}},
		"kubelet's mirror":            {hash, []metav1.OwnerReference{node}, []string{own, hash, dashed}},
		"no Node owns it":             {hash, nil, []string{own}},
		"a ReplicaSet owns it":        {hash, []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet"}}, []string{own}},
		"somebody else owns it, too":  {hash, []metav1.OwnerReference{node, {APIVersion: "apps/v1", Kind: "ReplicaSet"}}, []string{own}},
		"a Node of another group":     {hash, []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Node"}}, []string{own}},
		"it claims another pod's UID": {"11111111-2222-4333-8444-555555555555", []metav1.OwnerReference{node}, []string{own}},
		"capitals":                    {"B1946AC92492D2347C6235B4D2611184", []metav1.OwnerReference{node}, []string{own}},
		"what kubelet never writes":   {"hash", []metav1.OwnerReference{node}, []string{own}},
	} {
		m := &metav1.ObjectMeta{UID: own, OwnerReferences: c.owners}
		if c.claim != "" {
			m.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: c.claim}
		}
		uid := own
		if len(c.want) > 1 {
			uid = hash
		}
		if got := UIDs(m); !slices.Equal(got, c.want) || UID(m) != uid {
			t.Errorf("%s: %v, %s", name, got, UID(m))
		}
	}
}

// kubelet itself knows a static pod only by the hash.
func TestStaticPodsOfKubelet(t *testing.T) {
	const hash, dashed = "b1946ac92492d2347c6235b4d2611184", "b1946ac9-2492-d234-7c62-35b4d2611184"
	m := &metav1.ObjectMeta{UID: hash}
	if got := UIDs(m); !slices.Equal(got, []string{hash, dashed}) || UID(m) != hash {
		t.Errorf("%v, %s", got, UID(m))
	}
	for key, values := range map[string]map[string]bool{
		"kubernetes.io/config.source": {"api": false, "file": true, "http": true},
		corev1.MirrorPodAnnotationKey: {hash: true, "": true},
		"other":                       {"file": false},
	} {
		for value, is := range values {
			if m.Annotations = map[string]string{key: value}; IsStatic(m) != is {
				t.Errorf("%s: %q: %v", key, value, IsStatic(m))
			}
		}
	}
}
