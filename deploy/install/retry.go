package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// pauses returns the backoff between retries: conflicts end at once, outages in seconds.
func pauses() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 1000, Cap: 5 * time.Second}
}

// retry calls f until it succeeds, ctx ends, or the API server rejects the request for good.
// NotFound is such an error too.
func retry(ctx context.Context, f func(context.Context) error) error {
	b := pauses()
	var last error
	for {
		err := f(ctx)
		if err == nil || definite(err) {
			return err
		}
		if last == nil || !over(ctx) {
			last = err // keep the earlier error: once ctx has ended, err only says so
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

// over reports whether ctx has ended or is past its deadline.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// permanentError is an error that a retry cannot fix.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }

func (e *permanentError) Unwrap() error { return e.err }

// definite reports whether a retry is useless: the API server has rejected the request, or the
// error is permanent.
func definite(err error) bool {
	if _, ok := errors.AsType[*permanentError](err); ok {
		return true
	}
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err) ||
		apierrors.IsUnsupportedMediaType(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsResourceExpired(err)
}

// every calls f at once and then at each interval until it is done, fails, or ctx ends. If ctx
// ends, it returns f's last error or, if there is none, an error with the text of why, which
// describes what was awaited.
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

// pageSize keeps a response at a few MiB.
const pageSize = 500

// pages calls list for each page. list returns the continue token of the next page, or "".
func pages(ctx context.Context, list func(context.Context, metav1.ListOptions) (string, error)) error {
	o := metav1.ListOptions{Limit: pageSize}
	for {
		err := retry(ctx, func(ctx context.Context) (err error) {
			o.Continue, err = list(ctx, o)
			return err
		})
		if err != nil || o.Continue == "" {
			return err
		}
	}
}
