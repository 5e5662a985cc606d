package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// feed receives a kind's objects from a reflector. Its methods are called by one goroutine.
type feed[T client.Object] struct {
	heard    func()    // the API server has sent something
	changed  func(o T) // the object is new or has changed
	gone     func(o T)
	replaced func(list []T, version string) // all of them
	// denied is called if the API server shows no objects, because the kind or the right is
	// missing.
	denied func(conditions.Outcome)
}

// Add implements cache.ReflectorStore.
func (f *feed[T]) Add(o any) error { return f.Update(o) }

// Update implements cache.ReflectorStore.
func (f *feed[T]) Update(o any) error { return f.pass(o, f.changed) }

// Delete implements cache.ReflectorStore.
func (f *feed[T]) Delete(o any) error { return f.pass(o, f.gone) }

// Replace implements cache.ReflectorStore.
func (f *feed[T]) Replace(list []any, version string) error {
	f.heard()
	all := make([]T, 0, len(list))
	for _, o := range list {
		if err := f.pass(o, func(t T) { all = append(all, t) }); err != nil {
			return err
		}
	}
	f.replaced(all, version)
	return nil
}

// Resync implements cache.ReflectorStore. It is unused.
func (f *feed[T]) Resync() error { return nil }

// Transformer implements cache.TransformingStore: a streamed list is trimmed object by object.
func (f *feed[T]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		t, ok := o.(T)
		if !ok {
			return o, nil // a missed deletion; Delete reports the type
		}
		trim(t)
		return t, nil
	}
}

// pass trims an object and passes it on.
func (f *feed[T]) pass(o any, to func(T)) error {
	f.heard()
	t, ok := o.(T)
	if !ok {
		return fmt.Errorf("unexpected %T in a watch of %T", o, t)
	}
	trim(t)
	to(t)
	return nil
}

// lastRetry bounds how late the return of an API server, or added CRDs or rights, are noticed;
// jitter can double it.
const lastRetry = 15 * time.Second

// follow keeps a feed in sync with a resource until ctx ends.
func follow[T client.Object](ctx context.Context, a *api, resource, selector string, list runtime.Object, example T, f *feed[T]) {
	f.heard = a.account.heard
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			into := list.DeepCopyObject()
			err := a.list(ctx, resource, o, into)
			switch outcome := outcomeOf(err); outcome {
			case Done:
				return into, nil
			case KindMissing, conditions.Forbidden:
				if outcome == KindMissing || a.account.final(outcome) {
					f.denied(outcome)
				}
			}
			return nil, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return a.watch(ctx, resource, o)
		},
	}
	cache.NewReflectorWithOptions(lw, example, f, cache.ReflectorOptions{
		Name: resource, Clock: endingClock{done: ctx.Done()},
		Backoff: &wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 16, Cap: lastRetry},
	}).RunWithContext(ctx)
}

// endingClock ends waits early when done is closed. While an API server refuses connections, a
// reflector that streams its list waits without watching its context.
type endingClock struct {
	clock.RealClock
	done <-chan struct{}
}

// After is the method that the reflector uses.
func (c endingClock) After(d time.Duration) <-chan time.Time {
	out := make(chan time.Time, 1)
	go func() {
		select {
		case <-time.After(d):
		case <-c.done:
		}
		out <- time.Now()
	}()
	return out
}

// reporter notifies the worker of the node's Diagnoses, once per version.
type reporter struct {
	known *mirror[*v1alpha1.Diagnosis]
	h     worker.Handler
	// prepare makes sure that the objects a new Diagnosis needs are known and saved.
	prepare  func(d *v1alpha1.Diagnosis)
	reported map[types.NamespacedName]lastReported
}

// lastReported is the version that the worker was last notified of.
type lastReported struct {
	uid     types.UID
	version string
}

func (r *reporter) feed() *feed[*v1alpha1.Diagnosis] {
	m := r.known
	return &feed[*v1alpha1.Diagnosis]{
		changed: func(d *v1alpha1.Diagnosis) {
			if _, _, news := m.take(kept(d)); news {
				r.changed(d)
			}
		},
		gone: func(d *v1alpha1.Diagnosis) {
			m.drop(d)
			if last, ok := r.reported[client.ObjectKeyFromObject(d)]; ok && last.uid == d.UID {
				r.delete(client.ObjectKeyFromObject(d))
			}
		},
		replaced: func(list []*v1alpha1.Diagnosis, version string) {
			short := make([]*v1alpha1.Diagnosis, len(list))
			for i, d := range list {
				short[i] = kept(d)
			}
			m.replace(short, version)
			r.replaced(list)
		},
		denied: func(conditions.Outcome) {},
	}
}

func (r *reporter) changed(d *v1alpha1.Diagnosis) {
	name := client.ObjectKeyFromObject(d)
	last, known := r.reported[name]
	if known && last.uid == d.UID && last.version == d.ResourceVersion {
		return
	}
	if known && last.uid != d.UID {
		r.delete(name)
		known = false
	}
	if !known && !d.Status.Completed() {
		r.prepare(d)
	}
	r.reported[name] = lastReported{d.UID, d.ResourceVersion}
	r.h.Diagnosis(d)
}

func (r *reporter) delete(name types.NamespacedName) {
	key := worker.Key{NamespacedName: name, UID: r.reported[name].uid}
	delete(r.reported, name)
	r.h.Gone(key)
}

// replaced reports all changes that were missed without a watch.
func (r *reporter) replaced(list []*v1alpha1.Diagnosis) {
	there := make(map[types.NamespacedName]types.UID, len(list))
	for _, d := range list {
		there[client.ObjectKeyFromObject(d)] = d.UID
	}
	for name, last := range r.reported {
		if there[name] != last.uid {
			r.delete(name)
		}
	}
	// They are run in the order of their creation.
	slices.SortStableFunc(list, func(a, b *v1alpha1.Diagnosis) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for _, d := range list {
		r.changed(d)
	}
}

// kept returns the part of a Diagnosis to keep in memory. It omits the results of an ended
// Diagnosis, which are most of its size. Before an ended Diagnosis is written, it is read again.
func kept(d *v1alpha1.Diagnosis) *v1alpha1.Diagnosis {
	if !d.Status.Completed() {
		return d
	}
	short := *d
	short.Spec.Parameters = nil
	short.Status = v1alpha1.DiagnosisStatus{Conditions: d.Status.Conditions, Phase: d.Status.Phase}
	return &short
}
