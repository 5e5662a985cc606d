package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Resources in the API's paths.
const (
	operations    = "operations"
	operationSets = "operationsets"
	triggers      = "triggers"
	diagnoses     = "diagnoses"
	// statusOf is the subresource that agents write.
	statusOf = "diagnoses/status"
)

// Verbs of RBAC.
const (
	verbGet    = "get"
	verbList   = "list"
	verbWatch  = "watch"
	verbCreate = "create"
	verbPatch  = "patch"
)

// fieldManager is the writer's name in managedFields.
const fieldManager = "kernosis-agent"

// api sends the requests. Each has a timeout and is counted. client-go's own retries are off,
// because the caller knows better whether to retry.
type api struct {
	rest    rest.Interface
	params  runtime.ParameterCodec
	timeout time.Duration
	account *account
}

func newAPI(to *rest.Config, timeout time.Duration, a *account) (*api, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(to)
	c.GroupVersion, c.APIPath = new(v1alpha1.GroupVersion()), "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	// Custom resources support only JSON.
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, err
	}
	return &api{rest: client, params: runtime.NewParameterCodec(scheme), timeout: timeout, account: a}, nil
}

// listFor is the timeout of a list in multiples of that of other requests, because lists are large.
const listFor = 6

// list reads a page of a resource in all namespaces.
func (a *api) list(ctx context.Context, resource string, o metav1.ListOptions, into runtime.Object) error {
	r := a.rest.Get().Resource(resource).VersionedParams(&o, a.params)
	return a.send(ctx, verbList, resource, r, listFor*a.timeout, into)
}

// watch watches a resource in all namespaces.
func (a *api) watch(ctx context.Context, resource string, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	r := a.rest.Get().Resource(resource).VersionedParams(&o, a.params).MaxRetries(0)
	if o.TimeoutSeconds != nil {
		r = r.Timeout(time.Duration(*o.TimeoutSeconds) * time.Second)
	}
	w, err := r.Watch(ctx)
	a.account.answered(ctx, verbWatch, resource, err)
	return w, err
}

// get reads the current object, not one from the API server's cache.
func (a *api) get(ctx context.Context, resource string, of types.NamespacedName, into runtime.Object) error {
	r := a.rest.Get().NamespaceIfScoped(of.Namespace, of.Namespace != "").Resource(resource).Name(of.Name)
	return a.send(ctx, verbGet, resource, r, a.timeout, into)
}

func (a *api) create(ctx context.Context, d *v1alpha1.Diagnosis) (*v1alpha1.Diagnosis, error) {
	out := &v1alpha1.Diagnosis{}
	r := a.rest.Post().Namespace(d.Namespace).Resource(diagnoses).Param("fieldManager", fieldManager).Body(d)
	return out, a.send(ctx, verbCreate, diagnoses, r, a.timeout, out)
}

func (a *api) patchStatus(ctx context.Context, of types.NamespacedName, patch []byte) (*v1alpha1.Diagnosis, error) {
	out := &v1alpha1.Diagnosis{}
	r := a.rest.Patch(types.MergePatchType).Namespace(of.Namespace).Resource(diagnoses).Name(of.Name).SubResource("status").
		Param("fieldManager", fieldManager).Body(patch)
	return out, a.send(ctx, verbPatch, statusOf, r, a.timeout, out)
}

// send sends a request, and counts it.
func (a *api) send(ctx context.Context, verb, resource string, r *rest.Request, timeout time.Duration, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := r.Timeout(timeout).MaxRetries(0).Do(ctx).Into(into)
	a.account.answered(ctx, verb, resource, err)
	return err
}

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
