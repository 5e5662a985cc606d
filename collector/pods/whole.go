package pods

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Whole passes complete pods to users that need more than metadata. Each pod is passed once for
// each of its changes, in order, by one goroutine. Only the result of Trim is kept.
type Whole struct {
	Client kubernetes.Interface
	// Trim returns what is needed of a pod, and must keep nothing else of it; nil: the pod is not
	// needed.
	Trim    func(*corev1.Pod) any
	Changed func(any) // called for a new or changed pod
	Gone    func(any) // called for a deleted pod, with its last state
	Listed  func()    // called when all pods that the node had at the start were passed
}

// kept is a pod in the store: its metadata and the result of Trim.
type kept struct {
	*metav1.PartialObjectMetadata
	trimmed any
}

// metaOf returns the metadata of an object in the store, or nil.
func metaOf(o any) *metav1.PartialObjectMetadata {
	switch o := o.(type) {
	case *metav1.PartialObjectMetadata:
		return o
	case *kept:
		return o.PartialObjectMetadata
	}
	return nil
}

// trim is the informer's transformation. It may be called again with its own result.
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

// changed passes a pod on, if it has its UID: if several pods claim the same UID, users that
// identify pods by UID get only one.
func (w *Watch) changed(o any) {
	k, ok := o.(*kept)
	if !ok || k.trimmed == nil {
		return
	}
	// The index may be ahead of the notifications.
	if holder := w.holder(k); holder == nil || holder.UID == k.UID {
		w.whole.Changed(k.trimmed)
	}
}

func (w *Watch) removed(o any) {
	k, ok := o.(*kept)
	if !ok || k.trimmed == nil {
		return
	}
	next := w.holder(k) // k is no longer in the index
	switch {
	case next == nil:
		w.whole.Gone(k.trimmed)
	case Precedes(&k.ObjectMeta, &next.ObjectMeta, podOf(k.PartialObjectMetadata).UID):
		w.whole.Gone(k.trimmed)
		if next.trimmed != nil {
			w.whole.Changed(next.trimmed)
		}
	}
}

// holder returns the pod that currently has the UID of a pod, or nil.
func (w *Watch) holder(of *kept) *kept {
	uid := podOf(of.PartialObjectMetadata).UID
	found, err := w.informer.GetIndexer().ByIndex(byUID, uid)
	if err != nil {
		return nil
	}
	var holder *kept
	for _, o := range found {
		if k, ok := o.(*kept); ok && (holder == nil || Precedes(&k.ObjectMeta, &holder.ObjectMeta, uid)) {
			holder = k
		}
	}
	return holder
}
