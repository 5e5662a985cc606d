package conditions

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// Outcome is how a write ended.
type Outcome string

// The outcomes. All but Written are retried.
const (
	Written      Outcome = "written"
	Conflict     Outcome = "conflict"     // 409
	Throttled    Outcome = "throttled"    // 429
	ServerError  Outcome = "server_error" // 5xx
	Unauthorized Outcome = "unauthorized" // 401: the token has expired; it is read again
	Forbidden    Outcome = "forbidden"    // 403: RBAC or a policy
	NodeMissing  Outcome = "node_missing" // 404
	Refused      Outcome = "refused"      // another 4xx
	TimedOut     Outcome = "timeout"
	Unreachable  Outcome = "unreachable" // no connection, or a broken one
)

// Outcomes returns all outcomes, for a table of counters; the first is Written.
func Outcomes() []Outcome {
	return []Outcome{Written, Conflict, Throttled, ServerError, Unauthorized, Forbidden, NodeMissing, Refused, TimedOut, Unreachable}
}

// OutcomeOf returns the outcome of a request to the API. All packages that count requests use it.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Written
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		switch code := status.Status().Code; {
		case code == http.StatusConflict:
			return Conflict
		case code == http.StatusTooManyRequests:
			return Throttled
		case code == http.StatusUnauthorized:
			return Unauthorized
		case code == http.StatusForbidden:
			return Forbidden
		case code == http.StatusNotFound:
			return NodeMissing
		case code >= 500:
			return ServerError
		default:
			return Refused
		}
	}
	var timeout net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return TimedOut
	}
	return Unreachable
}

// Send sends a request, bounded in time. client-go's own retries are off: the caller retries, because
// it counts tries and checks whether the state has changed meanwhile.
func Send(ctx context.Context, r *rest.Request, timeout time.Duration, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return r.Timeout(timeout).MaxRetries(0).Do(ctx).Into(into)
}

// AskedDelay returns how long the API asks the client to wait; 0: it doesn't ask.
func AskedDelay(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds) * time.Second
}

// Backoff returns the waits between tries. Each is randomly up to twice as long, so that a fleet that
// lost its API server does not come back all at once.
func Backoff(first, last time.Duration) wait.Backoff {
	return wait.Backoff{Duration: first, Factor: 2, Jitter: 1, Steps: 16, Cap: last}
}
