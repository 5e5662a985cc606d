package worker

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// handler receives changes from the store.
type handler struct{ w *Worker }

// ObjectsChanged implements Handler.
func (h handler) ObjectsChanged() {
	h.w.install(h.w.c.Store.Objects())
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.w.heard = true
	for _, e := range h.w.entries {
		e.held = time.Time{} // try it again
	}
	wake(h.w.moved)
}

// Diagnosis implements Handler.
func (h handler) Diagnosis(d *v1alpha1.Diagnosis) {
	if d.Spec.NodeName != h.w.c.Node || d.Spec.TargetSelector != nil || d.UID == "" {
		return
	}
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.w.upsert(d)
	h.w.wakeBoth()
}

// Gone implements Handler.
func (h handler) Gone(k Key) {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	if e := h.w.byName(k.NamespacedName); e != nil && e.Diagnosis.UID == k.UID {
		h.w.markDeleted(e)
	}
	if o := h.w.outside[k.NamespacedName]; o != nil && o.diagnosis.UID == k.UID {
		delete(h.w.outside, k.NamespacedName)
	}
}

// byName returns the newest entry of a name, or nil. The lock is held.
func (w *Worker) byName(name types.NamespacedName) *entry {
	return w.entries[w.names[name]]
}

// upsert takes in a Diagnosis from the store. The lock is held.
func (w *Worker) upsert(d *v1alpha1.Diagnosis) {
	name := types.NamespacedName{Namespace: d.Namespace, Name: d.Name}
	e := w.byName(name)
	if same := w.entries[string(d.UID)]; same != nil && same != e && !same.Gone {
		e, w.names[name] = same, same.ID
	}
	switch {
	case e != nil && e.Diagnosis.UID == d.UID && !e.Gone:
		e.take(d)
		if e.Claimed && !w.hold().has(&d.Status) {
			e.changed(false) // another agent has taken it, or our claim was removed
		}
		w.endedElsewhere(e, d)
		return
	case e != nil && e.Diagnosis.UID == d.UID:
		return // it was deleted meanwhile
	case e != nil && e.Own && e.Diagnosis.UID == "" && !e.Gone && !e.Local:
		w.markStored(e, d) // by an earlier attempt whose response was lost
		return
	case e != nil:
		w.markDeleted(e) // and recreated under its name
	}
	if d.Status.Completed() {
		delete(w.outside, name)
		return
	}
	w.admit(d)
}

// markStored records that the store has our Diagnosis. The lock is held.
func (w *Worker) markStored(e *entry, d *v1alpha1.Diagnosis) {
	w.stats.Made++
	e.stored = time.Now()
	e.take(d)
	if e.report != nil && e.report.Waiting != nil && e.report.Waiting.Reason == reasonAway {
		e.again = true // it has what it waited for
	}
	e.changed(false)
	w.endedElsewhere(e, d)
}

// endedElsewhere adopts an end that somebody else has written. The lock is held.
func (w *Worker) endedElsewhere(e *entry, d *v1alpha1.Diagnosis) {
	if !d.Status.Completed() || e.Reported {
		return
	}
	e.Reported, e.unsaved = true, true
	if e.End == nil {
		c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionComplete)
		e.finish(d.Status.Phase, c.Reason, c.Message)
		e.Shown = true // whoever ended it has reported it
		e.cancel = "it was ended elsewhere: " + c.Reason
	}
	wake(w.moved)
}

// markDeleted records that a Diagnosis was deleted: if it runs, it is cancelled and removed. The
// lock is held.
func (w *Worker) markDeleted(e *entry) {
	if e.Gone {
		return
	}
	e.Gone, e.unsaved = true, true
	e.cancel = "it was deleted"
	w.wakeBoth()
}
