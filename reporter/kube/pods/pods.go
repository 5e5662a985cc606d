package pods

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	nodepods "github.com/kernosis/kernosis/collector/pods"
)

// Pod identifies a pod. Labels is shared and must not be changed.
type Pod struct {
	// UID is the UID in Events of the pod: the object's, or for a static pod's mirror the UID
	// that kubelet gave the static pod.
	UID       string            `json:"uid"`
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"-"`
}

// Config configures a Watch.
type Config struct {
	Client metadata.Interface
	Node   string
	// Whole watches complete pods instead of their metadata. May be nil.
	Whole *Whole
}

const (
	// remember is how long a deleted pod is remembered.
	remember = 10 * time.Minute
	// maxGone bounds the deleted pods that are remembered; the oldest are dropped first.
	maxGone = 1000
)

// Watch watches the pods of one node. It is safe for concurrent use.
type Watch struct {
	informer cache.SharedIndexInformer
	streams  streams
	gone     *gone
	handed   cache.ResourceEventHandlerRegistration
	whole    *Whole
	once     sync.Once
}

// byUID indexes pods by each UID that the names of their cgroups may contain.
const byUID = "uid"

// New returns a Watch without pods until Run is called.
func New(cfg Config) (*Watch, error) {
	if cfg.Client == nil && cfg.Whole == nil || cfg.Node == "" {
		return nil, errors.New("watch pods: client and node are needed")
	}
	w := &Watch{gone: newGone(remember, maxGone), whole: cfg.Whole}
	ofNode := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", cfg.Node).String()
	}
	keep := trim
	if cfg.Whole != nil {
		w.informer, keep = w.newInformer(cfg.Whole.listWatch(ofNode), cfg.Whole.Client, &corev1.Pod{}), cfg.Whole.trim
	} else {
		w.informer = w.newInformer(listWatch(cfg.Client, ofNode), cfg.Client, &metav1.PartialObjectMetadata{})
	}
	if err := w.informer.SetTransform(keep); err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	var err error
	w.handed, err = w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    w.changed,
		DeleteFunc: w.deleted,
		// A pod that is deleted and created again while no watch is open appears as changed.
		UpdateFunc: func(old, now any) {
			before, after := metaOf(old), metaOf(now)
			if before != nil && after != nil && before.UID != after.UID {
				w.deleted(old)
			}
			w.changed(now)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	return w, nil
}

func (w *Watch) newInformer(l *cache.ListWatch, client any, of runtime.Object) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(
		cache.ToListWatcherWithWatchListSemantics(w.streams.note(l), client), of, 0, cache.Indexers{byUID: uidsOf},
	)
}

// listWatch lists and watches the metadata of pods.
func listWatch(client metadata.Interface, of func(*metav1.ListOptions)) *cache.ListWatch {
	pods := client.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
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

// Run watches until ctx ends. It may be called only once.
func (w *Watch) Run(ctx context.Context) error {
	w.once.Do(func() {
		var listed sync.WaitGroup
		defer listed.Wait()
		if w.whole != nil {
			listed.Go(func() {
				if cache.WaitForCacheSync(ctx.Done(), w.handed.HasSynced) {
					w.whole.Listed()
				}
			})
		}
		w.informer.RunWithContext(ctx)
	})
	return nil
}

// Known reports whether all pods have been seen that the node had at a time. While a watch is
// open that holds for any time, because changes arrive within milliseconds.
func (w *Watch) Known(time.Time) bool { return w.informer.HasSynced() && w.streams.settled() }

// Await waits until all pods of the node have been seen, or ctx ends.
func (w *Watch) Await(ctx context.Context) { cache.WaitForCacheSync(ctx.Done(), w.informer.HasSynced) }

// Pod returns the pod with this UID, as in the name of its cgroup.
func (w *Watch) Pod(uid string) (Pod, bool) {
	var m *metav1.PartialObjectMetadata
	if found, err := w.informer.GetIndexer().ByIndex(byUID, uid); err == nil {
		m = owner(found, uid)
	}
	if m != nil && string(m.UID) == uid {
		return podOf(m), true
	}
	// A deleted pod's own UID takes precedence over a claimed one.
	if p, own, ok := w.gone.find(uid, time.Now()); ok && (own || m == nil) {
		return p, true
	}
	if m == nil {
		return Pod{}, false
	}
	return podOf(m), true
}

// owner returns the pod that a UID belongs to.
func owner(found []any, uid string) (of *metav1.PartialObjectMetadata) {
	for _, o := range found {
		if m := metaOf(o); m != nil && (of == nil || nodepods.Precedes(&m.ObjectMeta, &of.ObjectMeta, uid)) {
			of = m
		}
	}
	return of
}

// Named returns the pod of this name if it exists now.
func (w *Watch) Named(namespace, name string) (Pod, bool) {
	found, ok, err := w.informer.GetStore().GetByKey(cache.ObjectName{Namespace: namespace, Name: name}.String())
	if err != nil || !ok {
		return Pod{}, false
	}
	m := metaOf(found)
	if m == nil {
		return Pod{}, false
	}
	return podOf(m), true
}

// Gone returns how many deleted pods are remembered.
func (w *Watch) Gone() int { return w.gone.size() }

func (w *Watch) deleted(o any) {
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	m := metaOf(o)
	if m == nil {
		return
	}
	if uids, err := uidsOf(o); err == nil {
		w.gone.add(uids, podOf(m), time.Now())
	}
	w.removed(o)
}

// uidsOf returns the UIDs that the names of the pod's cgroups may contain.
func uidsOf(o any) ([]string, error) {
	m := metaOf(o)
	if m == nil {
		return nil, fmt.Errorf("index pods: unexpected type %T", o)
	}
	return nodepods.UIDs(&m.ObjectMeta), nil
}

// podOf returns the Pod with the UID that kubelet uses in its own Events, and that kubectl looks
// for (describe pod).
func podOf(m *metav1.PartialObjectMetadata) Pod {
	return Pod{UID: nodepods.UID(&m.ObjectMeta), Namespace: m.Namespace, Name: m.Name, Labels: m.Labels}
}

// trim keeps the fields that are used: most of a pod's metadata is managed fields.
func trim(o any) (any, error) {
	m, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o, nil
	}
	kept := &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta}
	kept.UID, kept.Namespace, kept.Name, kept.Labels, kept.ResourceVersion = m.UID, m.Namespace, m.Name, m.Labels, m.ResourceVersion
	kept.CreationTimestamp = m.CreationTimestamp
	if hash, ok := m.Annotations[corev1.MirrorPodAnnotationKey]; ok {
		kept.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: hash}
		kept.OwnerReferences = m.OwnerReferences
	}
	return kept, nil
}
