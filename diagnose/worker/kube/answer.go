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

// Ways in which a request ends, besides those of package conditions.
const (
	Done        conditions.Outcome = "done"
	Exists      conditions.Outcome = "exists"       // 409 of a Create
	NotFound    conditions.Outcome = "not_found"    // 404 of an object, or of its namespace
	KindMissing conditions.Outcome = "kind_missing" // 404 of the kind: it is not defined there
	TooOld      conditions.Outcome = "too_old"      // 410 of a watch or list: it is begun anew
	Terminating conditions.Outcome = "namespace_terminating"
	TooLarge    conditions.Outcome = "too_large"  // more than the API server, or etcd, takes
	Unreadable  conditions.Outcome = "unreadable" // an answer that is not of the kind's form
)

// Outcomes returns all, for a table of counters.
func Outcomes() []conditions.Outcome {
	return []conditions.Outcome{
		Done, Exists, NotFound, KindMissing, TooOld, Terminating, TooLarge, Unreadable,
		conditions.Conflict, conditions.Throttled, conditions.ServerError, conditions.Unauthorized, conditions.Forbidden,
		conditions.Refused, conditions.TimedOut, conditions.Unreachable,
	}
}

// outcomeOf names how a request ended.
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
		return KindMissing // no API has answered, but the server's page of what is nowhere
	case s.Code == http.StatusNotFound:
		return NotFound
	case s.Code == http.StatusGone:
		return TooOld
	case s.Code == http.StatusRequestEntityTooLarge, strings.Contains(s.Message, "request is too large"), strings.Contains(s.Message, "trying to send message larger than max"):
		return TooLarge // the latter are etcd's and its client's words, as an error of the server
	}
	return conditions.OutcomeOf(err)
}

// unreadable reports whether an answer came and is not of the kind's form.
func unreadable(err error) bool {
	var form *json.UnmarshalTypeError
	var text *json.SyntaxError
	return errors.As(err, &form) || errors.As(err, &text) || runtime.IsNotRegisteredError(err) || runtime.IsMissingKind(err)
}

// isAway reports whether the same request may be answered otherwise later, though nobody
// changes it.
func isAway(o conditions.Outcome) bool {
	switch o {
	case conditions.Throttled, conditions.ServerError, conditions.Unauthorized, conditions.TimedOut, conditions.Unreachable, KindMissing, TooOld:
		return true
	}
	return false
}

// maxErrorBytes bounds an error's text: a refusal repeats what it refuses.
const maxErrorBytes = 1 << 10

// requestError is an error of the API server or of the way to it, bounded.
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

// Explain makes of the error of a request for an object one that the worker knows:
// worker.ErrGone where the object is not there, worker.ErrAway where nobody answers.
func (s *Store) Explain(ctx context.Context, what string, err error) error {
	if outcomeOf(err) == NotFound || errors.Is(err, worker.ErrGone) {
		return fmt.Errorf("%s: %w", what, worker.ErrGone)
	}
	return s.explain(ctx, what, err)
}

// explain makes of a request's error one of the Store's. ctx is that of the caller: where
// it ended nothing is known of the answer.
func (s *Store) explain(ctx context.Context, what string, err error) error {
	return fmt.Errorf("%s: %w", what, &requestError{err: err, away: ctx.Err() != nil || !s.account.final(outcomeOf(err))})
}
