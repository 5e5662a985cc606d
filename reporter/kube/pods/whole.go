package pods

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kernosis/kernosis/collector/probe/podspec"
)

// Whole is for who has to know more of pods than their metadata. Each pod is handed over
// once for each of its changes, in order, by one goroutine; kept of it is what Trim leaves.
type Whole struct {
	Client kubernetes.Interface
	// Trim takes of a pod what is wanted, and keeps nothing else of it; nil: nothing of
	// this one.
	Trim    func(*corev1.Pod) any
	Changed func(any) // a pod is new, or has changed
	Gone    func(any) // as it was last
	Listed  func()    // all pods that the node had at the start were handed over
}

// kept is a pod in the store: metadata, and what was trimmed.
type kept struct {
	*metav1.PartialObjectMetadata
	trimmed any
}

// metaOf returns the metadata of what the store has, or nil.
func metaOf(o any) *metav1.PartialObjectMetadata {
	switch o := o.(type) {
	case *metav1.PartialObjectMetadata:
		return o
	case *kept:
		return o.PartialObjectMetadata
	}
	return nil
}

func (w *Whole) listWatch(of func(*metav1.ListOptions)) *cache.ListWatch {
	pods := w.Client.CoreV1().Pods(metav1.NamespaceAll)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			of(&o)
			return pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			of(&o)
			return pods.Watch(ctx, o)
		},
	}
}

// trim is the informer's transformation: it may come again for what it has made.
func (w *Whole) trim(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	m, err := trim(&metav1.PartialObjectMetadata{ObjectMeta: p.ObjectMeta})
	if err != nil {
		return nil, err
	}
	return &kept{m.(*metav1.PartialObjectMetadata), w.Trim(p)}, nil
}

// changed hands a pod over, if the UID is its own: of several that claim one, the others are
// not there for whoever knows pods by their UIDs.
func (w *Watch) changed(o any) {
	k, ok := o.(*kept)
	if !ok || k.trimmed == nil {
		return
	}
	// The index may be ahead of what is handed over.
	if holder := w.holder(k); holder == nil || holder.UID == k.UID {
		w.whole.Changed(k.trimmed)
	}
}

func (w *Watch) removed(o any) {
	k, ok := o.(*kept)
	if !ok || k.trimmed == nil {
		return
	}
	next := w.holder(k) // k is in the index no more
	switch {
	case next == nil:
		w.whole.Gone(k.trimmed)
	case podspec.Precedes(&k.ObjectMeta, &next.ObjectMeta, podOf(k.PartialObjectMetadata).UID):
		w.whole.Gone(k.trimmed)
		if next.trimmed != nil {
			w.whole.Changed(next.trimmed)
		}
	}
}

// holder returns the pod that has the UID of another, or nil.
func (w *Watch) holder(of *kept) *kept {
	uid := podOf(of.PartialObjectMetadata).UID
	found, err := w.informer.GetIndexer().ByIndex(byUID, uid)
	if err != nil {
		return nil
	}
	var holder *kept
	for _, o := range found {
		if k, ok := o.(*kept); ok && (holder == nil || podspec.Precedes(&k.ObjectMeta, &holder.ObjectMeta, uid)) {
			holder = k
		}
	}
	return holder
}
