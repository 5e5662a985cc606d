package kube

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mirror has the known objects of a kind. They must not be changed. It is safe for concurrent use.
type mirror[T client.Object] struct {
	mu     sync.RWMutex
	byName map[types.NamespacedName]entry[T]
	// synced is closed when all objects have been listed once. settled is closed then, or when the
	// API server has answered that it has none to show; then the known objects stay in force.
	synced, settled   chan struct{}
	syncing, settling sync.Once
}

type entry[T client.Object] struct {
	object T
	// ahead: the object is the response to a request that the watch has not caught up with. Older
	// events of the watch are ignored.
	ahead bool
}

func newMirror[T client.Object]() *mirror[T] {
	return &mirror[T]{byName: make(map[types.NamespacedName]entry[T]), synced: make(chan struct{}), settled: make(chan struct{})}
}

// older reports whether resourceVersion a is before b.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

func (m *mirror[T]) get(name types.NamespacedName) (T, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	e, ok := m.byName[name]
	return e.object, ok
}

// all returns the objects, sorted by name.
func (m *mirror[T]) all() []T {
	m.mu.RLock()
	list := make([]T, 0, len(m.byName))
	for _, e := range m.byName {
		list = append(list, e.object)
	}
	m.mu.RUnlock()
	slices.SortFunc(list, func(a, b T) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return list
}

// take stores an object from the watch. news reports whether it is not older than the known one.
func (m *mirror[T]) take(o T) (was T, had, news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, had := m.byName[client.ObjectKeyFromObject(o)]
	if had && e.ahead && older(o.GetResourceVersion(), e.object.GetResourceVersion()) {
		return e.object, had, false
	}
	m.byName[client.ObjectKeyFromObject(o)] = entry[T]{object: o}
	return e.object, had, true
}

// drop handles the deletion of an object seen by the watch.
func (m *mirror[T]) drop(o T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.byName[client.ObjectKeyFromObject(o)]
	if ok && (!e.ahead || e.object.GetUID() == o.GetUID()) {
		delete(m.byName, client.ObjectKeyFromObject(o))
	}
}

// replace stores a list of all objects at a version, and reports whether it is the first list.
func (m *mirror[T]) replace(list []T, version string) (first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := make(map[types.NamespacedName]entry[T], len(list))
	for _, o := range list {
		next[client.ObjectKeyFromObject(o)] = entry[T]{object: o}
	}
	for name, e := range m.byName {
		if e.ahead && older(version, e.object.GetResourceVersion()) {
			next[name] = e
		}
	}
	m.byName = next
	m.syncing.Do(func() { close(m.synced); first = true })
	m.settle()
	return first
}

// settle records that the API server has answered for the kind, and reports whether it is the first
// time.
func (m *mirror[T]) settle() (first bool) {
	m.settling.Do(func() { close(m.settled); first = true })
	return first
}

// learn stores an object from a request's response. A watch that lags behind the response does not
// revert it.
func (m *mirror[T]) learn(o T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.byName[client.ObjectKeyFromObject(o)]
	if ok && !older(e.object.GetResourceVersion(), o.GetResourceVersion()) {
		return
	}
	m.byName[client.ObjectKeyFromObject(o)] = entry[T]{object: o, ahead: true}
}

// update does the same, but only for a known object: its deletion may have been seen before the
// response came.
func (m *mirror[T]) update(o T) {
	m.mu.RLock()
	e, ok := m.byName[client.ObjectKeyFromObject(o)]
	m.mu.RUnlock()
	if ok && e.object.GetUID() == o.GetUID() {
		m.learn(o)
	}
}

// forget drops an object that a request has found to be gone.
func (m *mirror[T]) forget(name types.NamespacedName, uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.byName[name]; ok && e.object.GetUID() == uid {
		delete(m.byName, name)
	}
}
