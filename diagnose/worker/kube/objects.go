package kube

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Objects implements [worker.Store].
func (s *Store) Objects() *worker.Objects { return s.objects.Load() }

// rebuild updates Objects from the mirrors.
func (s *Store) rebuild() {
	s.objects.Store(&worker.Objects{
		Operations: s.operations.all(), OperationSets: s.sets.all(), Triggers: s.triggers.all(),
	})
}

// savedVersion changes when older versions of Kernosis must no longer read the format.
const savedVersion = 1

// load reads the objects saved by the previous process. An unreadable file is treated like a
// missing one, because the API server has everything.
func (s *Store) load() {
	var last worker.Objects
	if found, err := s.file.Load(savedVersion, &last); err != nil {
		s.config.Log.Warn("can't read the saved Operations, OperationSets and Triggers; no diagnoses run until the API server answers", "error", err)
	} else if found {
		preload(s.operations, last.Operations)
		preload(s.sets, last.OperationSets)
		preload(s.triggers, last.Triggers)
	}
	s.rebuild()
}

func preload[T client.Object](m *mirror[T], list []T) {
	for _, o := range list {
		m.take(o)
	}
}

// saveAfter gathers changes in quick succession: kubectl applies the objects of a folder one by
// one.
const saveAfter = time.Second

// save writes the file after changes, until done is closed.
func (s *Store) save(done <-chan struct{}) {
	for {
		select {
		case <-s.unsaved:
		case <-done:
			s.saveNow()
			return
		}
		select {
		case <-time.After(saveAfter):
		case <-done:
		}
		s.saveNow()
	}
}

// saveNow writes the file if the objects have changed. If that fails, the old file stays; the error
// is logged, and the write retried with the next change.
func (s *Store) saveNow() {
	s.saving.Lock()
	defer s.saving.Unlock()
	if !s.dirty.Swap(false) {
		return
	}
	if err := s.file.Save(s.Objects()); err != nil {
		s.config.Log.Warn("can't save Operations, OperationSets and Triggers for a start without the API server", "error", err)
	}
}

// objectsFeed returns a feed that fills the mirror of a kind. It calls news after relevant changes.
func objectsFeed[T client.Object](m *mirror[T], news func()) *feed[T] {
	return &feed[T]{
		changed: func(o T) {
			if was, had, ok := m.take(o); ok && (!had || !same(was, o)) {
				news()
			}
		},
		gone: func(o T) {
			m.drop(o)
			news()
		},
		replaced: func(list []T, version string) {
			before := m.all()
			if first := m.replace(list, version); first || !slices.EqualFunc(before, m.all(), same) {
				news()
			}
		},
		denied: func(conditions.Outcome) {
			if m.settle() {
				news()
			}
		},
	}
}

// same reports whether two versions of an object are the same for a run, which ignores the status.
func same[T client.Object](a, b T) bool {
	return a.GetName() == b.GetName() && a.GetUID() == b.GetUID() && a.GetGeneration() == b.GetGeneration()
}

// trim removes fields that no run needs. Whether a set is valid is checked when it is used, so that
// diagnoses also run without a controller.
func trim(object client.Object) {
	object.SetManagedFields(nil)
	switch o := object.(type) {
	case *v1alpha1.Diagnosis:
		trigger.KeepOrigin(o)
		return
	case *v1alpha1.OperationSet:
		o.Status = v1alpha1.OperationSetStatus{} // it has up to 100 paths
	case *v1alpha1.Trigger:
		o.Status = v1alpha1.TriggerStatus{}
	}
	object.SetAnnotations(nil) // including kubectl's copy of the whole object
	object.SetOwnerReferences(nil)
	object.SetFinalizers(nil)
}

// lookUp reads the objects that a new Diagnosis needs and the mirrors lack. The watches of the
// kinds are not synchronized: when a set and its Diagnosis are created together, the Diagnosis may
// arrive first, and would fail because the set is missing. news is called if something was found.
func (s *Store) lookUp(ctx context.Context, d *v1alpha1.Diagnosis, news func()) {
	name := types.NamespacedName{Name: d.Spec.OperationSet}
	set, known := s.sets.get(name)
	if !known {
		set = &v1alpha1.OperationSet{}
		if s.api.get(ctx, operationSets, name, set) != nil {
			return // the run reports a missing set; the account logs other errors
		}
		trim(set)
		s.sets.learn(set)
	}
	found := !known
	asked := make(map[string]bool)
	for i := range set.Spec.AdjacencyList {
		name := types.NamespacedName{Name: set.Spec.AdjacencyList[i].Operation}
		if _, known := s.operations.get(name); known || name.Name == "" || asked[name.Name] || s.config.Builtin(name.Name) {
			continue
		}
		asked[name.Name] = true
		o := &v1alpha1.Operation{}
		if err := s.api.get(ctx, operations, name, o); isAway(outcomeOf(err)) {
			break
		} else if err != nil {
			continue
		}
		trim(o)
		s.operations.learn(o)
		found = true
	}
	if found {
		news()
	}
}

// mirror has the known objects of a kind. They must not be changed. It is safe for concurrent use.
type mirror[T client.Object] struct {
	mu     sync.RWMutex
	byName map[types.NamespacedName]entry[T]
	// synced is closed when all objects have been listed once. settled is closed then, or when the
	// API server has refused to list them; then the known objects stay in force.
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

// update does the same, but only for a known object: the watch may have delivered its deletion
// before the response came.
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
