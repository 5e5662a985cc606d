package events

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// writer makes the two requests that the sink needs.
type writer interface {
	create(ctx context.Context, e *corev1.Event) error
	patch(ctx context.Context, namespace, name string, data []byte) error
}

type clientWriter struct{ client kubernetes.Interface }

func (w clientWriter) create(ctx context.Context, e *corev1.Event) error {
	_, err := w.client.CoreV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{FieldManager: Component})
	return err
}

func (w clientWriter) patch(ctx context.Context, namespace, name string, data []byte) error {
	_, err := w.client.CoreV1().Events(namespace).Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: Component})
	return err
}

// answer is the meaning of an API server's answer for an Event.
type answer int

const (
	done        answer = iota
	exists             // created before, perhaps with an older count
	gone               // nothing to patch: the Event has expired
	noNamespace        // deleted or terminating
	refused            // for this Event, perhaps temporarily: policies and roles change
	invalid            // permanently
	away               // no request gets through for now
)

// read returns the meaning of an answer.
func read(err error) answer {
	switch {
	case err == nil:
		return done
	case apierrors.IsAlreadyExists(err):
		return exists
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return noNamespace
	case apierrors.IsNotFound(err):
		if status, ok := err.(apierrors.APIStatus); ok { //nolint:errorlint // client-go returns it unwrapped, as the lines above want it
			if d := status.Status().Details; d != nil && d.Kind == "namespaces" {
				return noNamespace
			}
		}
		return gone
	case apierrors.IsRequestEntityTooLargeError(err), apierrors.IsUnsupportedMediaType(err), apierrors.IsInvalid(err) && namesField(err):
		return invalid
	case denies(err):
		return refused
	}
	// Timeouts, broken connections, 401 (a token is renewed within a minute), 408, 429 and all server
	// errors.
	return away
}

// denies reports whether the answer is about the Event and not about all requests: a webhook may
// choose any code.
func denies(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}

// namesField reports whether the API server names an invalid field. A ValidatingAdmissionPolicy
// answers 422 without one.
func namesField(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field != "" })
}

// outcomeOf returns the outcome of a request. Not every 403 means missing permission, and a 404
// does not concern the Node.
func outcomeOf(w *write, a answer, err error) conditions.Outcome {
	switch {
	case a == done && w.patch:
		return Patched
	case a == done:
		return Created
	case a == gone && w.patch:
		return Recreated
	case a == gone, a == noNamespace:
		return NamespaceGone
	}
	return conditions.OutcomeOf(err)
}

// wished returns how long the server asks clients to wait; 0: it doesn't ask.
func wished(err error) time.Duration {
	if s, ok := apierrors.SuggestsClientDelay(err); ok {
		return time.Duration(s) * time.Second
	}
	return 0
}
