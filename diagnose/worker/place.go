package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/tenancy"
)

// tenantShare limits each tenant to one tenth of all tenants' slots.
const tenantShare = 10

// kindsOfPlaces is how many groups have MaxOpen slots each, see [places].
const kindsOfPlaces = 3

// places counts the open Diagnoses by origin. own, system and tenants have MaxOpen slots each, so
// that a flood in one group does not block the others.
type places struct {
	own     int // of the node's own triggers
	system  int // others of the system namespace
	tenants int
	of      map[string]int // by tenant
}

// places counts the Diagnoses that have not ended, or whose end is not reported. The lock is held.
func (w *Worker) places() *places {
	p := &places{of: map[string]int{}}
	for _, e := range w.entries {
		if e.open() {
			p.add(w.c.Namespace, e.Own, e.Diagnosis)
		}
	}
	return p
}

func (p *places) add(system string, own bool, d *v1alpha1.Diagnosis) {
	switch {
	case own:
		p.own++
	case !tenancy.Applies(d, system):
		p.system++
	default:
		p.tenants++
		p.of[d.Namespace]++
	}
}

// full returns why there is no slot for a Diagnosis of the store, or "" if there is one.
func (w *Worker) full(p *places, d *v1alpha1.Diagnosis) string {
	share := max(1, w.c.MaxOpen/tenantShare)
	switch {
	case !tenancy.Applies(d, w.c.Namespace):
		if p.system >= w.c.MaxOpen {
			return fmt.Sprintf("%d Diagnoses of the system namespace have not ended on this node", p.system)
		}
	case p.of[d.Namespace] >= share:
		return fmt.Sprintf("%d Diagnoses of this namespace have not ended on this node", p.of[d.Namespace])
	case p.tenants >= w.c.MaxOpen:
		return fmt.Sprintf("%d Diagnoses of all namespaces have not ended on this node", p.tenants)
	}
	return ""
}

// outside is a Diagnosis of the store that waits for a slot. The object belongs to the store and
// must not be changed. It is not saved to disk, because the store delivers it again after a
// restart.
type outside struct {
	diagnosis *v1alpha1.Diagnosis
	why       string
	retryAt   time.Time // when to retry reporting why
}

// isReported reports whether the store has the condition that it waits. If somebody else overwrites
// the condition, as the controller does while an agent is silent, it is reported again.
func (o *outside) isReported() bool {
	c := meta.FindStatusCondition(o.diagnosis.Status.Conditions, v1alpha1.ConditionComplete)
	return c != nil && c.Reason == v1alpha1.ReasonQueueFull
}

// admit adds a Diagnosis of the store, or leaves it outside. The lock is held.
func (w *Worker) admit(d *v1alpha1.Diagnosis) {
	name := types.NamespacedName{Namespace: d.Namespace, Name: d.Name}
	if o := w.outside[name]; o != nil {
		o.diagnosis = d // it gets its turn when there is a slot
		return
	}
	if why := w.full(w.places(), d); why != "" {
		if len(w.outside) == 0 {
			w.log.Warn("diagnoses are queued", "diagnosis", name.String(), "reason", why)
		}
		w.outside[name] = &outside{diagnosis: d, why: why}
		return
	}
	w.enter(d)
}

// enter adds a Diagnosis of the store. The lock is held.
func (w *Worker) enter(d *v1alpha1.Diagnosis) {
	w.stats.Taken++
	n := w.add(&saved{ID: string(d.UID), Diagnosis: slim(d), Taken: time.Now()})
	n.unsaved, n.never = true, true
	n.take(d)
	n.changed(true)
	// Runs of this node's own triggers are stored by name.
	if w.ledger.newer[string(d.UID)] || d.Namespace == w.c.Namespace && w.ledger.newer[d.Name] {
		n.finish(v1alpha1.PhaseUnknown, v1alpha1.ReasonOutcomeUnknown, "a newer version of Kernosis has begun it on this node, and this one can't continue it")
	}
}

// enterAll gives free slots to waiting Diagnoses: first to those of the system namespace, then to
// the tenant with the fewest, the oldest Diagnosis first. The lock is held.
func (w *Worker) enterAll() {
	if len(w.outside) == 0 {
		return
	}
	for p := w.places(); ; {
		var next *v1alpha1.Diagnosis
		for _, o := range w.outside {
			if w.full(p, o.diagnosis) == "" && (next == nil || p.before(o.diagnosis, next)) {
				next = o.diagnosis
			}
		}
		if next == nil {
			return
		}
		delete(w.outside, types.NamespacedName{Namespace: next.Namespace, Name: next.Name})
		p.add(w.c.Namespace, false, next)
		w.enter(next)
		wake(w.reported)
	}
}

// before reports whether Diagnosis a gets a slot before b. The system namespace is not counted in
// of, so it has the fewest.
func (p *places) before(a, b *v1alpha1.Diagnosis) bool {
	if p.of[a.Namespace] != p.of[b.Namespace] {
		return p.of[a.Namespace] < p.of[b.Namespace]
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Namespace+"/"+a.Name < b.Namespace+"/"+b.Name
}

// reportOutside reports to the store that one Diagnosis waits for a slot, and returns whether there
// was one. It runs after all reports about Diagnoses with a slot.
func (w *Worker) reportOutside(ctx context.Context) bool {
	w.mu.Lock()
	now := time.Now()
	var o *outside
	if now.Before(w.awayUntil) {
		w.mu.Unlock()
		return false
	}
	for _, one := range w.outside {
		if !one.isReported() && !now.Before(one.retryAt) {
			o = one
			break
		}
	}
	if o == nil {
		w.mu.Unlock()
		return false
	}
	d, why, hold := o.diagnosis, o.why, w.hold()
	o.retryAt = now.Add(lastPause) // unless the store accepts it
	w.mu.Unlock()
	asking, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	key := Key{types.NamespacedName{Namespace: d.Namespace, Name: d.Name}, d.UID}
	out, err := w.c.Store.Write(asking, key, func(s *v1alpha1.DiagnosisStatus) {
		if s.Completed() || hold.another(s) {
			return
		}
		s.ObservedGeneration, s.Phase = d.Generation, v1alpha1.PhasePending
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionComplete, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonQueueFull,
			Message: why, ObservedGeneration: d.Generation, LastTransitionTime: metav1.NewTime(time.Now()),
		})
	})
	if ctx.Err() != nil && err != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reportedOutside(o, out, err)
	return true
}

// reportedOutside handles the store's response. The lock is held.
func (w *Worker) reportedOutside(o *outside, d *v1alpha1.Diagnosis, err error) {
	name := types.NamespacedName{Namespace: o.diagnosis.Namespace, Name: o.diagnosis.Name}
	switch {
	case err == nil:
		w.stats.Writes[writeTaken]++
		w.answers()
		switch {
		case w.outside[name] != o:
		case d.Status.Completed(): // ended by somebody else meanwhile
			delete(w.outside, name)
		case o.diagnosis.UID == d.UID && o.diagnosis.Generation == d.Generation:
			o.diagnosis = d
		}
	case errors.Is(err, ErrAway):
		w.stats.Writes[writeAway]++
		w.isAway(err)
	case errors.Is(err, ErrGone):
		w.stats.Writes[writeGone]++
		w.answers()
		if w.outside[name] == o {
			delete(w.outside, name)
		}
	default:
		w.stats.Writes[writeFailed]++
		w.log.Warn("can't write the status of a queued diagnosis", "diagnosis", name.String(), "error", err)
	}
}
