package pods

import (
	"context"
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

// WatchConfig configures a Watch.
type WatchConfig struct {
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
}

// byUID indexes pods by each UID that the names of their cgroups may contain.
const byUID = "uid"

// NewWatch returns a Watch without pods until Run is called.
func NewWatch(cfg WatchConfig) (*Watch, error) {
	w := &Watch{gone: newGone(remember, maxGone), whole: cfg.Whole}
	var lists *cache.ListWatch
	var client any = cfg.Client
	var of runtime.Object = &metav1.PartialObjectMetadata{}
	keep := trim
	if cfg.Whole != nil {
		pods := cfg.Whole.Client.CoreV1().Pods(metav1.NamespaceAll)
		lists = listWatch(&w.streams, cfg.Node, pods.List, pods.Watch)
		client, of, keep = cfg.Whole.Client, &corev1.Pod{}, cfg.Whole.trim
	} else {
		pods := cfg.Client.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
		lists = listWatch(&w.streams, cfg.Node, pods.List, pods.Watch)
	}
	from := cache.ToListWatcherWithWatchListSemantics(lists, client)
	w.informer = cache.NewSharedIndexInformer(from, of, 0, cache.Indexers{byUID: uidsOf})
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

// listWatch lists and watches the pods of a node, and tracks the watches in s.
func listWatch[L runtime.Object](
	s *streams, node string, list func(context.Context, metav1.ListOptions) (L, error), begin cache.WatchFuncWithContext,
) *cache.ListWatch {
	ofNode := fields.OneTermEqualSelector("spec.nodeName", node).String()
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = ofNode
			return list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = ofNode
			w, err := begin(ctx, o)
			if err != nil {
				return nil, err
			}
			begun := &stream{Interface: w, of: s}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.open, s.opened = begun, time.Now()
			return begun, nil
		},
	}
}

// settle is how long a new watch may take to deliver pods that were created while there was no
// watch; it takes milliseconds.
const settle = time.Second

// streams tracks whether a watch is open. An informer does not report that: it stays synced after
// its first list, and retries silently if connections are refused.
type streams struct {
	mu     sync.Mutex
	open   *stream // nil: no open watch
	opened time.Time
}

// settled reports whether a watch is open and has delivered earlier changes.
func (s *streams) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open != nil && time.Since(s.opened) >= settle
}

// stream is a tracked watch. The reflector stops each watch once it has ended, some more than once.
type stream struct {
	watch.Interface
	of *streams
}

func (s *stream) Stop() {
	s.of.mu.Lock()
	if s.of.open == s {
		s.of.open = nil
	}
	s.of.mu.Unlock()
	s.Interface.Stop()
}

// Run watches until ctx ends. It may be called only once.
func (w *Watch) Run(ctx context.Context) error {
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
	return nil
}

// Known reports whether the Watch has received all pods that the node had at a time. While a watch
// is open, this is true for any time, because changes arrive within milliseconds.
func (w *Watch) Known(time.Time) bool { return w.informer.HasSynced() && w.streams.settled() }

// Await waits until the Watch has received all pods of the node, or ctx ends.
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

func owner(found []any, uid string) (of *metav1.PartialObjectMetadata) {
	for _, o := range found {
		if m := metaOf(o); m != nil && (of == nil || Precedes(&m.ObjectMeta, &of.ObjectMeta, uid)) {
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
	return UIDs(&m.ObjectMeta), nil
}

// podOf returns the Pod with the UID that kubelet uses in its own Events, and that kubectl looks
// for (describe pod).
func podOf(m *metav1.PartialObjectMetadata) Pod {
	return Pod{UID: UID(&m.ObjectMeta), Namespace: m.Namespace, Name: m.Name, Labels: m.Labels}
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
