package kube

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
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

// saveAfter gathers changes that come together: kubectl applies the objects of a folder one by one.
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
		timer := time.NewTimer(saveAfter)
		select {
		case <-timer.C:
		case <-done:
			timer.Stop()
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
		s.account.notSaved()
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

// trim removes what no run needs. Whether a set is valid is checked when it is used, so that
// diagnoses also run without a controller.
func trim(object client.Object) {
	object.SetManagedFields(nil)
	switch o := object.(type) {
	case *v1alpha1.Diagnosis:
		delete(o.Annotations, corev1.LastAppliedConfigAnnotation)
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
