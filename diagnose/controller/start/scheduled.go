package start

import (
	"context"
	"encoding/json"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// writeScheduled writes to the Triggers' status when their schedules last created a Diagnosis. A
// failed write is retried with the next change; the saved state has the time too.
func (s *store) writeScheduled(ctx context.Context, ran map[string]time.Time) {
	for name, at := range ran {
		at = at.Truncate(time.Second).UTC()
		if s.scheduled[name].Equal(at) {
			continue
		}
		t := &v1alpha1.Trigger{}
		if err := s.part.cache.Get(ctx, client.ObjectKey{Name: name}, t); err != nil {
			continue // it is gone
		}
		if last := t.Status.LastScheduleTime; last == nil || last.Time.Before(at) {
			err := s.patchScheduled(ctx, t, at)
			if ctx.Err() != nil {
				return // the controller is ending; the state has the time
			}
			if err != nil {
				s.part.counts.scheduleFailed.Inc()
				s.log.Error("can't write the latest time of a schedule to its trigger", "trigger", name, "error", err)
				continue
			}
		}
		s.scheduled[name] = at
	}
}

// patchScheduled writes only this field: another part owns the conditions. A Trigger that was
// recreated meanwhile has another UID, and is left alone.
func (s *store) patchScheduled(ctx context.Context, t *v1alpha1.Trigger, at time.Time) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": t.UID},
		"status":   map[string]any{"lastScheduleTime": metav1.NewTime(at)},
	})
	if err != nil {
		return err
	}
	err = s.part.objects.Status().Patch(ctx, &v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: t.Name}}, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
