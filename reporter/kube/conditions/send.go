package conditions

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// removal is how a strategic-merge patch removes a condition from the list.
type removal struct {
	Patch string `json:"$patch"`
	Type  string `json:"type"`
}

// body returns a patch that contains only the given types.
func (l *ledger) body(write, remove []string) ([]byte, error) {
	list := make([]any, 0, len(write)+len(remove))
	for _, name := range write {
		list = append(list, l.condition(name))
	}
	for _, name := range remove {
		list = append(list, removal{Patch: "delete", Type: name})
	}
	return json.Marshal(map[string]any{"status": map[string]any{"conditions": list}})
}

// Patch patches a Node's status, and returns the new Node. client-go's own retries are off: the
// caller retries, because it counts tries and checks whether the state has changed meanwhile.
func Patch(ctx context.Context, client kubernetes.Interface, node, manager string, timeout time.Duration, body []byte) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	patched := &corev1.Node{}
	err := client.CoreV1().RESTClient().Patch(types.StrategicMergePatchType).
		Resource("nodes").Name(node).SubResource("status").Param("fieldManager", manager).
		Timeout(timeout).MaxRetries(0).Body(body).Do(ctx).Into(patched)
	return patched, err
}

// OutcomeOf returns the outcome of a request to the API, for all packages that count requests.
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

// askedDelay returns how long the API asks the client to wait.
func askedDelay(err error) time.Duration {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if !ok {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// patience returns the backoff between tries. Each wait is randomly up to twice as long, so that
// a fleet that lost its API server does not come back all at once.
func patience(start, now time.Time, everWritten bool) wait.Backoff {
	b := wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 16, Cap: 15 * time.Second}
	if !everWritten && now.Before(start.Add(fastFor)) {
		b.Cap = time.Second
	}
	return b
}
