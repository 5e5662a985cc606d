package kube

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
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
	group := v1alpha1.GroupVersion()
	c.GroupVersion, c.APIPath = &group, "/apis"
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
	ctx, cancel := context.WithTimeout(ctx, listFor*a.timeout)
	defer cancel()
	err := a.rest.Get().Resource(resource).VersionedParams(&o, a.params).Timeout(listFor * a.timeout).MaxRetries(0).Do(ctx).Into(into)
	a.account.answered(ctx, verbList, resource, err)
	return err
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
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	err := a.rest.Get().NamespaceIfScoped(of.Namespace, of.Namespace != "").Resource(resource).Name(of.Name).
		Timeout(a.timeout).MaxRetries(0).Do(ctx).Into(into)
	a.account.answered(ctx, verbGet, resource, err)
	return err
}

func (a *api) create(ctx context.Context, d *v1alpha1.Diagnosis) (*v1alpha1.Diagnosis, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	out := &v1alpha1.Diagnosis{}
	err := a.rest.Post().Namespace(d.Namespace).Resource(diagnoses).Param("fieldManager", fieldManager).
		Timeout(a.timeout).MaxRetries(0).Body(d).Do(ctx).Into(out)
	a.account.answered(ctx, verbCreate, diagnoses, err)
	return out, err
}

func (a *api) patchStatus(ctx context.Context, of types.NamespacedName, patch []byte) (*v1alpha1.Diagnosis, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	out := &v1alpha1.Diagnosis{}
	err := a.rest.Patch(types.MergePatchType).Namespace(of.Namespace).Resource(diagnoses).Name(of.Name).SubResource("status").
		Param("fieldManager", fieldManager).Timeout(a.timeout).MaxRetries(0).Body(patch).Do(ctx).Into(out)
	a.account.answered(ctx, verbPatch, statusOf, err)
	return out, err
}
