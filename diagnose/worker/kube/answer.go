package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Outcomes of a request, besides those of package conditions.
const (
	Done        conditions.Outcome = "done"
	Exists      conditions.Outcome = "exists"       // 409 for a Create
	NotFound    conditions.Outcome = "not_found"    // 404 for an object, or its namespace
	KindMissing conditions.Outcome = "kind_missing" // 404 for the kind: its CRD is missing
	TooOld      conditions.Outcome = "too_old"      // 410 for a watch or list, which is restarted
	Terminating conditions.Outcome = "namespace_terminating"
	TooLarge    conditions.Outcome = "too_large"  // more than the API server or etcd accepts
	Unreadable  conditions.Outcome = "unreadable" // a response that can't be decoded as the kind
)

// Outcomes returns all outcomes, to initialize counters.
func Outcomes() []conditions.Outcome {
	return []conditions.Outcome{
		Done, Exists, NotFound, KindMissing, TooOld, Terminating, TooLarge, Unreadable,
		conditions.Conflict, conditions.Throttled, conditions.ServerError, conditions.Unauthorized, conditions.Forbidden,
		conditions.Refused, conditions.TimedOut, conditions.Unreachable,
	}
}

// outcomeOf returns the outcome for a request's error.
func outcomeOf(err error) conditions.Outcome {
	if err == nil {
		return Done
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		if unreadable(err) {
			return Unreadable
		}
		return conditions.OutcomeOf(err)
	}
	s := status.Status()
	switch {
	case apierrors.IsAlreadyExists(err):
		return Exists
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return Terminating
	case s.Code == http.StatusNotFound && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return KindMissing // a generic 404 page of the server, not a response of the API
	case s.Code == http.StatusNotFound:
		return NotFound
	case s.Code == http.StatusGone:
		return TooOld
	case s.Code == http.StatusRequestEntityTooLarge, strings.Contains(s.Message, "request is too large"), strings.Contains(s.Message, "trying to send message larger than max"):
		return TooLarge // etcd and its client use these texts, as a server error
	}
	return conditions.OutcomeOf(err)
}

// unreadable reports whether a response came but can't be decoded as the kind.
func unreadable(err error) bool {
	var form *json.UnmarshalTypeError
	var text *json.SyntaxError
	return errors.As(err, &form) || errors.As(err, &text) || runtime.IsNotRegisteredError(err) || runtime.IsMissingKind(err)
}

// isAway reports whether the same request may succeed later without being changed.
func isAway(o conditions.Outcome) bool {
	switch o {
	case conditions.Throttled, conditions.ServerError, conditions.Unauthorized, conditions.TimedOut, conditions.Unreachable, KindMissing, TooOld:
		return true
	}
	return false
}

// maxErrorBytes bounds an error's text, because a rejection repeats the rejected object.
const maxErrorBytes = 1 << 10

// requestError is an error of the API server or the connection, with bounded text.
type requestError struct {
	err  error
	away bool
}

func (e *requestError) Error() string {
	text := display.Safe(e.err.Error(), maxErrorBytes)
	if e.away {
		return worker.ErrAway.Error() + ": " + text
	}
	return text
}

func (e *requestError) Unwrap() error { return e.err }

func (e *requestError) Is(target error) bool { return e.away && target == worker.ErrAway }

// Explain converts the error of a request for an object to one that the worker knows:
// worker.ErrGone if the object does not exist, worker.ErrAway if it is temporary.
func (s *Store) Explain(ctx context.Context, what string, err error) error {
	if outcomeOf(err) == NotFound || errors.Is(err, worker.ErrGone) {
		return fmt.Errorf("%s: %w", what, worker.ErrGone)
	}
	return s.explain(ctx, what, err)
}

// explain wraps a request's error. It is an ErrAway if it is temporary, or if ctx, the caller's,
// has ended, because then the response is unknown.
func (s *Store) explain(ctx context.Context, what string, err error) error {
	return fmt.Errorf("%s: %w", what, &requestError{err: err, away: ctx.Err() != nil || !s.account.final(outcomeOf(err))})
}
