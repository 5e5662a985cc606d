package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kernosis/kernosis/collector/pods"
)

// killed is the panic value of a stage at which the process is killed.
type killed struct{}

// model is an API server that fails at random. It only provides random answers; the answers of a
// real server are tested elsewhere.
type model struct {
	rnd      *rand.Rand
	now      map[string]corev1.Event // by name, without expired Events
	reported map[string]int64        // latest count by name, including expired Events
	onPod    map[string]bool
	down     bool
	calm     bool   // no more failures
	during   func() // called while a request is on its way
}

func (m *model) trouble() (before, after error) {
	if m.calm {
		return nil, nil
	}
	if m.down {
		return errors.New("connection refused"), nil
	}
	events := schema.GroupResource{Resource: "events"}
	errs := []error{
		context.DeadlineExceeded, apierrors.NewConflict(events, "e", errors.New("changed")), apierrors.NewTooManyRequests("busy", 1),
		apierrors.NewInternalError(errors.New("etcd")), apierrors.NewForbidden(events, "e", errors.New("policy")), apierrors.NewUnauthorized("expired"),
	}
	switch err := errs[m.rnd.IntN(len(errs))]; m.rnd.IntN(10) {
	case 0:
		return err, nil
	case 1: // done, but the answer is lost
		return nil, context.DeadlineExceeded
	}
	return nil, nil
}

func (m *model) create(_ context.Context, e *corev1.Event) error {
	m.during()
	before, after := m.trouble()
	if before != nil {
		return before
	}
	if strings.HasPrefix(e.Namespace, "going") {
		err := apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, e.Name, errors.New("being terminated"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return err
	}
	if strings.HasPrefix(e.Namespace, "bad") {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, e.Name, field.ErrorList{field.Invalid(field.NewPath("metadata", "labels"), "no label!", "")})
	}
	if _, ok := m.now[e.Name]; ok {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "events"}, e.Name)
	}
	m.now[e.Name], m.onPod[e.Name] = *e, e.InvolvedObject.Kind == "Pod"
	m.report(e.Name, int64(e.Count))
	return after
}

func (m *model) patch(_ context.Context, _, name string, data []byte) error {
	m.during()
	before, after := m.trouble()
	if before != nil {
		return before
	}
	e, ok := m.now[name]
	if !ok {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{Kind: "events"}}}
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return err
	}
	m.now[name] = e
	m.report(name, int64(e.Count))
	return after
}

func (m *model) report(name string, count int64) {
	if count < m.reported[name] {
		panic(fmt.Sprintf("count of %s went from %d to %d", name, m.reported[name], count))
	}
	m.reported[name] = count
}

// known knows all pods except those whose UID says so.
type known struct{}

func (known) Known(time.Time) bool { return true }
func (known) Pod(uid string) (pods.Pod, bool) {
	ns, _, _ := strings.Cut(uid, "-")
	return pods.Pod{UID: uid, Namespace: ns, Name: uid}, ns != "unknown"
}
