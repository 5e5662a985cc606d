package kube

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Objects implements [worker.Store].
func (s *Store) Objects() *worker.Objects { return s.objects.Load() }

// rebuild makes Objects of what is known of each kind.
func (s *Store) rebuild() {
	s.objects.Store(&worker.Objects{
		Operations: s.operations.all(), OperationSets: s.sets.all(), Triggers: s.triggers.all(),
	})
}

// savedVersion changes when an older version of Kernosis must not read the form any more.
const savedVersion = 1

// load begins with what the last run knew. A file that can't be read is one that is not
// there: the API server has it all.
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

// saveAfter gathers changes that come together: kubectl applies a folder one by one.
const saveAfter = time.Second

// save keeps the file as the objects are, until done is closed.
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

// saveNow writes the file, where it is not as it should be. Where it can't, the one before
// stays: it is reported, and tried again with the next change.
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

// objectsFeed returns what a reflector fills with one of the kinds that a run is made of.
// news is called after a change that matters.
func objectsFeed[T client.Object](m *mirror[T], trim func(T), news func()) *feed[T] {
	return &feed[T]{
		trim: trim,
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
			if first := m.replace(list, version); first || !sameAll(before, m.all()) {
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

// same reports whether a run is made of two objects in the same way: a status that has
// changed is none of its business.
func same[T client.Object](a, b T) bool {
	return a.GetUID() == b.GetUID() && a.GetGeneration() == b.GetGeneration()
}

func sameAll[T client.Object](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if client.ObjectKeyFromObject(a[i]) != client.ObjectKeyFromObject(b[i]) || !same(a[i], b[i]) {
			return false
		}
	}
	return true
}

// trimMeta drops what no run needs of an object's metadata.
func trimMeta(o client.Object) {
	o.SetManagedFields(nil)
	o.SetAnnotations(nil) // kubectl's copy of the whole object among them
	o.SetOwnerReferences(nil)
	o.SetFinalizers(nil)
}

func trimOperation(o *v1alpha1.Operation) { trimMeta(o) }

// The status of a set has up to 100 paths. Whether it is valid is found where it is used,
// so that nothing stops where no controller says so.
func trimSet(o *v1alpha1.OperationSet) {
	trimMeta(o)
	o.Status = v1alpha1.OperationSetStatus{}
}

func trimTrigger(o *v1alpha1.Trigger) {
	trimMeta(o)
	o.Status = v1alpha1.TriggerStatus{}
}
