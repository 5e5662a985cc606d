package events

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
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
	case fromWebhook(err):
		if denies(err) {
			return refused
		}
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

// fromWebhook reports whether an admission webhook denies the Event. It may choose any code, reason
// and details; the API server only adds a prefix to its message.
func fromWebhook(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && strings.HasPrefix(status.Status().Message, "admission webhook ")
}

// denies reports whether the answer is about the Event and not about all requests.
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

// note records an answer. If the API server now has the series' Event for the first time, it returns
// the kernel's time of the fault.
func (k *Sink) note(w *write, err error, now time.Time) (fault time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.change = true
	s, a := w.s, read(err)
	s.sending = false
	k.stats.Requests[outcomeOf(w, a, err)]++
	if a != away {
		s.fails = 0
		logged := k.out.logged
		if lasted, was := k.out.over(now); was && logged {
			k.cfg.Log.Info("API server accepts Events again", "away", lasted.Round(time.Millisecond))
		}
	}
	if a == done {
		s.tries = 0
		return k.took(w, now)
	}
	switch {
	case a == exists:
		s.Created = true // with the count of an earlier process: the next request sends the present count
		s.contradicted(now)
	case a == gone && w.patch:
		s.Created = false // it has expired: it is created again, with the total
		s.contradicted(now)
	case a == noNamespace && s.Pod != "":
		k.lost(s, AstrayNamespace, err)
	case a == invalid:
		k.lost(s, AstrayInvalid, err)
	case a == away:
		k.away(s, err, now)
	default:
		s.tries++
		s.due = now.Add(max(backoff(s.tries, lastRefused), min(conditions.AskedDelay(err), lastRefused)))
		if s.tries == refusalsReported {
			k.cfg.Log.Warn("Event refused; retrying", "rule", s.Rule, "namespace", w.event.Namespace, "name", w.event.Name, "error", err)
		}
	}
	return time.Time{}
}

// away records that a request got no answer or an error of the server. Only this Event may be
// affected, for example if a webhook for its namespace is down or the namespace has a rate limit. So
// other Events are sent meanwhile.
func (k *Sink) away(s *series, err error, now time.Time) {
	k.out.failed(now, conditions.AskedDelay(err))
	if !k.out.logged && s.fails == 0 { // otherwise it would be logged after each Event that is accepted
		k.out.logged = true
		k.cfg.Log.Warn("API server does not accept Events; keeping them", "error", err)
	}
	switch conditions.OutcomeOf(err) {
	case conditions.ServerError, conditions.TimedOut, conditions.Throttled:
		s.fails++
		s.due = now.Add(backoff(s.fails, lastFailed))
	}
}

// refusalsReported is the number of refusals in a row after which they are logged: one or two are
// a conflict.
const refusalsReported = 3

// contradicted records that the API server unexpectedly has, or does not have, the Event. One more
// request follows at once, or later if the server keeps contradicting itself.
func (s *series) contradicted(now time.Time) {
	if s.tries++; s.tries >= refusalsReported {
		s.due = now.Add(backoff(s.tries, lastRefused))
	}
}

func (k *Sink) took(w *write, now time.Time) (fault time.Time) {
	s := w.s
	k.stats.LastAcked = now
	s.Acked, s.AckedUnreported = w.count, w.unreported
	s.due = now.Add(s.every)
	if w.patch {
		s.every = min(2*s.every, k.cfg.PatchMost)
	}
	s.Created = true
	fault, s.kernel = s.kernel, time.Time{}
	return fault
}

func (k *Sink) lost(s *series, why string, err error) {
	k.table.lose(s, why)
	if why == AstrayInvalid {
		k.cfg.Log.Error("Event will never be accepted", "rule", s.Rule, "pod", s.Pod, "error", err)
	} else {
		k.cfg.Log.Info("Event reported only on the Node: its namespace is terminating", "rule", s.Rule, "pod", s.Pod)
	}
}

const (
	// firstRetry is short: most failures are broken connections.
	firstRetry = 200 * time.Millisecond
	// lastRetry bounds how late the sink notices that the API server is back. A fleet of 500
	// agents then sends 17 to 33 requests a second.
	lastRetry = 30 * time.Second
	// lastFailed bounds the wait of an Event that the server has failed. It is half of lastRetry,
	// so that the wait is over before the next request of an outage: the first one that succeeds
	// is followed by the others in order.
	lastFailed = lastRetry / 2
	// lastRefused is the same for a single refused Event.
	lastRefused = 5 * time.Minute
)

// backoff returns how long to wait after n failures in a row. It doubles up to most, with a
// random second half so that agents that failed together don't retry together.
func backoff(n int, most time.Duration) time.Duration {
	d := most
	if n < 20 {
		d = min(firstRetry<<max(n-1, 0), most)
	}
	return d/2 + rand.N(d/2+1)
}

// outage is a time in which no request gets through.
type outage struct {
	fails  int // in a row
	logged bool
	since  time.Time // the first one
	until  time.Time // no request before
	ended  time.Time // when the latest outage ended
}

func (o *outage) failed(now time.Time, wish time.Duration) {
	o.fails++
	if o.fails == 1 {
		o.since = now
	}
	o.until = now.Add(max(backoff(o.fails, lastRetry), min(wish, lastRetry)))
}

func (o *outage) over(now time.Time) (lasted time.Duration, was bool) {
	if o.fails == 0 {
		return 0, false
	}
	lasted = now.Sub(o.since)
	*o = outage{ended: now}
	return lasted, true
}
