package start

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

const (
	stateKey = "state.json.gz"
	// unreadKey has a state that could not be read, because it is from a newer version of Kernosis
	// or damaged.
	unreadKey = stateKey + ".unread"
	// markKey has the version up to which Events were handled, see [mark].
	markKey = "events-seen-to"
	// annotationHolder names the writer: the process that became the leader last.
	annotationHolder = v1alpha1.Group + "/trigger-state-holder"

	stateWithin = 10 * time.Second
	// lastSaveWithin bounds the save at the end; the manager gives its parts 10 s.
	lastSaveWithin = 3 * time.Second
	openAgain      = time.Second
)

// store keeps the engine's state in a ConfigMap.
//
// A new leader writes its name into it before it begins. If an earlier leader has not detected its
// loss yet, its next write conflicts, it reads the name, and stops writing.
type store struct {
	part   *Part
	maps   corev1client.ConfigMapInterface
	holder string
	log    *slog.Logger

	object     *corev1.ConfigMap // as last written or read
	saved      uint64            // the engine's change count at the last save
	superseded bool
	// scheduled has the times that are in the status of the Triggers.
	scheduled map[string]time.Time
}

func newStore(p *Part) *store {
	return &store{
		part: p, maps: p.api.CoreV1().ConfigMaps(p.cfg.Namespace), holder: string(uuid.NewUUID()),
		log: p.cfg.Log.With("config_map", p.cfg.Namespace+"/"+StateName), scheduled: map[string]time.Time{},
	}
}

// open reads the saved state and takes it over, and retries until that succeeds; false: the context
// has ended.
func (s *store) open(ctx context.Context) bool {
	var once sync.Once
	return until(ctx, openAgain, func() bool {
		err := s.take(ctx)
		if err == nil {
			s.restore()
		} else if ctx.Err() == nil && !apierrors.IsConflict(err) {
			once.Do(func() {
				s.log.Error("can't read or take over the trigger state; alerts, Events and schedules start no diagnoses", "error", err)
			})
		}
		return err == nil
	})
}

// take writes our name into the object, or creates it.
func (s *store) take(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stateWithin)
	defer cancel()
	object, err := s.maps.Get(ctx, StateName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		object, err = s.maps.Create(ctx, s.fresh(), metav1.CreateOptions{})
		s.object = object
		return err
	}
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&object.ObjectMeta, annotationHolder, s.holder)
	if object, err = s.maps.Update(ctx, object, metav1.UpdateOptions{}); err == nil {
		s.object = object
	}
	return err
}

func (s *store) fresh() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: StateName, Namespace: s.part.cfg.Namespace, Annotations: map[string]string{annotationHolder: s.holder},
		Labels: map[string]string{"app.kubernetes.io/managed-by": "kernosis"},
	}}
}

// restore passes the saved state to the engine. An unreadable state is reported, and the engine
// starts empty.
func (s *store) restore() {
	data := s.object.BinaryData[stateKey]
	if len(data) == 0 {
		return
	}
	state, err := decodeState(data)
	if err == nil {
		s.part.look(func(e *trigger.Engine) { err = e.Restore(state) })
	}
	if err != nil {
		s.part.counts.damaged.Inc()
		s.log.Error("can't read the saved trigger state: cooldowns and rate limits start over", "error", err)
		if len(data) <= maxUnread {
			s.object.BinaryData[unreadKey] = data // it is written with the next state
		}
		return
	}
	s.part.mark.reach(s.object.Data[markKey])
	s.part.counts.stateBytes.Set(float64(len(data)))
	s.part.look(func(e *trigger.Engine) { s.saved = e.Changes() })
}

// keep saves changes periodically until the context ends, and then once more.
func (s *store) keep(ctx context.Context) {
	t := time.NewTicker(s.part.cfg.SaveEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.save(ctx)
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSaveWithin)
			defer cancel()
			s.save(ctx)
			return
		}
	}
}

// save saves the state once all Diagnoses wanted before are created.
func (s *store) save(ctx context.Context) {
	var state *trigger.State
	var changes, seq uint64
	var seen string
	s.part.look(func(e *trigger.Engine) {
		if changes = e.Changes(); changes != s.saved {
			state, seq, seen = e.State(), s.part.queue.tail(), s.part.mark.version()
		}
	})
	if state == nil || s.superseded || !s.part.queue.settled(ctx, seq) {
		return
	}
	ran := map[string]time.Time{}
	for _, t := range state.Triggers {
		if !t.Ran.IsZero() {
			ran[t.Name] = t.Ran
		}
	}
	data, forgotten, err := encodeState(state, maxState-len(s.object.BinaryData[unreadKey]))
	if err == nil {
		if forgotten > 0 {
			s.part.counts.forgotten.Add(float64(forgotten))
			s.log.Error("the trigger state is too large; dropped the oldest entries", "left_out", forgotten, "most_bytes", maxState)
		}
		err = s.write(ctx, data, seen)
	}
	switch {
	case s.superseded:
		s.part.counts.saves.WithLabelValues("superseded").Inc()
		s.log.Warn("another controller leads; it owns the saved trigger state now")
		return
	case err != nil:
		s.part.counts.saves.WithLabelValues("failed").Inc()
		s.log.Error("can't save the trigger state; retrying", "error", err)
		return
	}
	s.saved = changes
	s.part.counts.saves.WithLabelValues("saved").Inc()
	s.part.counts.stateBytes.Set(float64(len(data)))
	s.part.counts.stateSaved.Set(float64(s.part.cfg.Now().Unix()))
	s.writeScheduled(ctx, ran)
}

// write writes the object, unless another process has taken it over.
func (s *store) write(ctx context.Context, data []byte, seen string) error {
	ctx, cancel := context.WithTimeout(ctx, stateWithin)
	defer cancel()
	// Keys of a newer version are kept.
	put := func(m *corev1.ConfigMap) {
		if m.BinaryData == nil {
			m.BinaryData = make(map[string][]byte)
		}
		if m.Data == nil {
			m.Data = make(map[string]string)
		}
		m.BinaryData[stateKey], m.Data[markKey] = data, seen
		if unread := s.object.BinaryData[unreadKey]; unread != nil {
			m.BinaryData[unreadKey] = unread
		}
	}
	object := s.object.DeepCopy()
	for {
		metav1.SetMetaDataAnnotation(&object.ObjectMeta, annotationHolder, s.holder)
		put(object)
		written, err := s.maps.Update(ctx, object, metav1.UpdateOptions{})
		switch {
		case err == nil:
			s.object = written
			return nil
		case apierrors.IsNotFound(err):
			object = s.fresh()
			put(object)
			if s.object, err = s.maps.Create(ctx, object, metav1.CreateOptions{}); err != nil {
				s.object = object
			}
			return err
		case !apierrors.IsConflict(err):
			return err
		}
		if object, err = s.maps.Get(ctx, StateName, metav1.GetOptions{}); err != nil {
			return err
		}
		// If only a person has edited it, it is still ours.
		if holder := object.Annotations[annotationHolder]; holder != "" && holder != s.holder {
			s.superseded = true
			return nil
		}
	}
}

const (
	// maxState is the largest compressed state in bytes: a ConfigMap may have 1 MiB.
	maxState = 900 << 10
	// maxUnread is the largest unreadable state in bytes that is kept. It leaves room for the next
	// state.
	maxUnread = maxState / 2
	// maxStateText is the largest uncompressed state in bytes.
	maxStateText = 16 << 20
)

// encodeState encodes a state in at most limit bytes. It drops the oldest entries until they fit,
// and returns how many it dropped.
func encodeState(s *trigger.State, limit int) (data []byte, forgotten int, err error) {
	for {
		var text int
		data, text, err = compress(s)
		if err != nil || len(data) <= limit && text <= maxStateText {
			return data, forgotten, err
		}
		before := forgotten
		n := (len(s.Streams) + 1) / 2
		s.Streams, forgotten = s.Streams[n:], forgotten+n
		n = (len(s.Subjects) + 1) / 2
		s.Subjects, forgotten = s.Subjects[n:], forgotten+n
		if forgotten > before {
			continue
		}
		for i := range s.Triggers {
			t := &s.Triggers[i]
			n := (len(t.Started) + 1) / 2
			t.Started, forgotten = t.Started[n:], forgotten+n
			t.Tenants = t.Tenants[max(len(t.Tenants)-len(t.Started), 0):]
		}
		if forgotten == before {
			return nil, forgotten, fmt.Errorf("trigger state: %d bytes for the names of %d triggers, at most %d", len(data), len(s.Triggers), limit)
		}
	}
}

// compress returns the compressed state, and the length of its text.
func compress(s *trigger.State) (data []byte, length int, err error) {
	text, err := json.Marshal(s)
	var b bytes.Buffer
	if err == nil {
		w := gzip.NewWriter(&b)
		_, err = w.Write(text)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return nil, 0, fmt.Errorf("trigger state: %w", err)
	}
	return b.Bytes(), len(text), nil
}

// decodeState decodes the result of encodeState.
func decodeState(data []byte) (*trigger.State, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(r, maxStateText+1))
	}
	if err != nil {
		return nil, fmt.Errorf("trigger state: %w", err)
	}
	if len(text) > maxStateText {
		return nil, fmt.Errorf("trigger state: more than %d bytes", maxStateText)
	}
	return trigger.ParseState(text)
}

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
