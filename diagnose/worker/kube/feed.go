package kube

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
func (f *feed[T]) Update(o any) error {
	t, err := f.trimmed(o)
	if err != nil {
		return err
	}
	f.changed(t)
	return nil
}

// Delete implements cache.ReflectorStore.
func (f *feed[T]) Delete(o any) error {
	t, err := f.trimmed(o)
	if err != nil {
		return err
	}
	f.gone(t)
	return nil
}

// Replace implements cache.ReflectorStore.
func (f *feed[T]) Replace(list []any, version string) error {
	f.heard()
	all := make([]T, 0, len(list))
	for _, o := range list {
		t, err := f.trimmed(o)
		if err != nil {
			return err
		}
		all = append(all, t)
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

func (f *feed[T]) trimmed(o any) (T, error) {
	f.heard()
	t, ok := o.(T)
	if !ok {
		return t, fmt.Errorf("unexpected %T in a watch of %T", o, t)
	}
	trim(t)
	return t, nil
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
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.done:
		}
		out <- time.Now()
	}()
	return out
}
