package pods

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestGonePodsAreRememberedForAWhileAndUpToANumber(t *testing.T) {
	g := newGone(time.Minute, 3)
	t0 := time.Unix(1000, 0)
	for i := range 5 {
		uid := fmt.Sprint("u", i)
		g.add([]string{uid, uid + "-other"}, Pod{UID: uid}, t0.Add(time.Duration(i)*time.Second))
	}
	if g.size() != 3 || len(g.byUID) != 6 {
		t.Fatalf("%d pods under %d names, want 3 under 6", g.size(), len(g.byUID))
	}
	if _, _, ok := g.find("u1", t0.Add(5*time.Second)); ok {
		t.Error("a pod beyond the bound is known")
	}
	if p, _, ok := g.find("u2-other", t0.Add(61*time.Second)); !ok || p.UID != "u2" {
		t.Error("a pod is forgotten too soon")
	}
	if _, _, ok := g.find("u2", t0.Add(62*time.Second)); ok {
		t.Error("a pod is known for too long")
	}
	g.add([]string{"u3"}, Pod{UID: "u3", Name: "again"}, t0.Add(62*time.Second))
	if p, _, ok := g.find("u3", t0.Add(63*time.Second)); !ok || p.Name != "again" {
		t.Error("the older deletion took the newer with it")
	}
}

func TestListedPods(t *testing.T) {
	const hash, dashed = "b1946ac92492d2347c6235b4d2611184", "b1946ac9-2492-d234-7c62-35b4d2611184"
	missed, at := 0, time.Now()
	l := NewListed(func() { missed++ })
	ended, end := context.WithCancel(t.Context())
	end()
	l.Await(ended) // does not wait for the list
	if _, ok := l.Pod("a"); ok || missed != 1 || l.Known(time.Time{}) {
		t.Errorf("a pod is known before the first list, or nobody heard of it: %d", missed)
	}
	l.Replace([]Pod{{UID: "a", Name: "one"}, {UID: hash, Name: "static"}}, at)
	l.Await(t.Context())
	l.Replace([]Pod{{UID: "b", Namespace: "shop", Name: "two", Labels: map[string]string{"app": "x"}}, {UID: hash, Name: "static"}}, at.Add(time.Second))
	for uid, name := range map[string]string{"a": "one", "b": "two", hash: "static", dashed: "static"} {
		if p, ok := l.Pod(uid); !ok || p.Name != name {
			t.Errorf("%s: %+v, %v", uid, p, ok)
		}
	}
	if l.gone.size() != 1 {
		t.Errorf("%d pods are gone, want 1", l.gone.size())
	}
	if n := testing.AllocsPerRun(100, func() { l.Pod("b") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if p, ok := l.Named("shop", "two"); !ok || p.UID != "b" || missed != 1 {
		t.Errorf("%+v, %v, %d missed", p, ok, missed)
	}
	// Named returns only existing pods.
	for i, name := range [][2]string{{"", "one"}, {"other", "two"}} {
		if p, ok := l.Named(name[0], name[1]); ok || missed != 2+i {
			t.Errorf("%+v, %d missed", p, missed)
		}
	}
	for ago, want := range map[time.Duration]bool{0: false, time.Second: true, time.Minute: true} {
		if at := at.Add(time.Second + time.Millisecond - ago); l.Known(at) != want {
			t.Errorf("pods of %s ago are known: %v", ago, !want)
		}
	}
}

// If there are two mirrors of one static pod, the older one is kubelet's.
func TestOldestMirror(t *testing.T) {
	at := func(name string, minute int) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Unix(int64(60*minute), 0)), Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "0123456789abcdef0123456789abcdef"}, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node"}},
		}}
	}
	for _, list := range [][]any{{at("kubelet's", 1), at("forged", 2)}, {at("forged", 2), at("kubelet's", 1)}} {
		if m := owner(list, "0123456789abcdef0123456789abcdef"); m == nil || m.Name != "kubelet's" {
			t.Errorf("%+v", m)
		}
	}
}
