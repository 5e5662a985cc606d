package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// pauses between tries: a conflict is over at once, an outage in seconds.
func pauses() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 1000, Cap: 5 * time.Second}
}

// retry calls f until it succeeds, ctx ends, or the API server has said a no that it
// will repeat. That something is not there is an error as well.
func retry(ctx context.Context, f func(context.Context) error) error {
	b := pauses()
	var last error
	for {
		err := f(ctx)
		if err == nil || definite(err) {
			return err
		}
		if last == nil || !over(ctx) {
			last = err // at the end of ctx, err says no more than that
		}
		timer := time.NewTimer(b.Step())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("timed out: %w", last)
		}
	}
}

// over reports whether ctx has ended, or is about to notice.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// permanentError is one that trying again can't mend.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }

func (e *permanentError) Unwrap() error { return e.err }

// definite reports whether an error is the API server's no, or permanent.
func definite(err error) bool {
	if _, ok := errors.AsType[*permanentError](err); ok {
		return true
	}
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err) ||
		apierrors.IsUnsupportedMediaType(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsResourceExpired(err)
}

// ignoreNotFound takes it for no error that something is not there (any more).
func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// every calls f at once and then each interval until it reports that it is done, fails, or
// ctx ends. Then the error is f's, or if f did not fail, why says what was waited for.
func every(ctx context.Context, interval time.Duration, f func(context.Context) (bool, error), why func() string) error {
	var failure error
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (done bool, err error) {
		done, failure = f(ctx)
		return done, failure
	})
	if err != nil && ctx.Err() != nil && (failure == nil || errors.Is(failure, ctx.Err())) {
		return fmt.Errorf("timed out: %s", why())
	}
	return err
}
