package controller

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/reporter/kube/leader"
)

// Scheme returns the kinds that a manager needs: Kubernetes' own and those of diagnoses.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	return s, nil
}

// Mapper maps the kinds of diagnoses to their resources, whether they are installed or not.
func Mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.GroupVersion()})
	for _, k := range []struct {
		kind, plural, singular string
		scope                  meta.RESTScope
	}{
		{v1alpha1.KindOperation, "operations", "operation", meta.RESTScopeRoot},
		{v1alpha1.KindOperationSet, "operationsets", "operationset", meta.RESTScopeRoot},
		{v1alpha1.KindTrigger, "triggers", "trigger", meta.RESTScopeRoot},
		{v1alpha1.KindDiagnosis, "diagnoses", "diagnosis", meta.RESTScopeNamespace},
		{v1alpha1.KindRemediationPolicy, "remediationpolicies", "remediationpolicy", meta.RESTScopeRoot},
	} {
		of := v1alpha1.GroupVersion()
		m.AddSpecific(of.WithKind(k.kind), of.WithResource(k.plural), of.WithResource(k.singular), k.scope)
	}
	return m
}

// Served returns the kinds that must be installed before [Add].
func Served() leader.Served {
	return leader.Served{Group: v1alpha1.GroupVersion(), Kinds: []string{
		v1alpha1.KindDiagnosis, v1alpha1.KindOperation, v1alpha1.KindOperationSet, v1alpha1.KindRemediationPolicy, v1alpha1.KindTrigger,
	}}
}

// ByObject returns the manager's cache options for the kinds of diagnoses. A cached Diagnosis lacks the
// results of its operations. Once it has ended or has a repair, it lacks only the results' values, and
// the messages except those of repairs. It lacks its parameters once it has a node or has ended, unless
// it has a repair. Read the Diagnosis from the API server before using these fields, and never write a
// whole object from the cache.
func ByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&v1alpha1.Operation{}:         {Transform: cache.TransformStripManagedFields()},
		&v1alpha1.OperationSet{}:      {Transform: cache.TransformStripManagedFields()},
		&v1alpha1.Trigger{}:           {Transform: cache.TransformStripManagedFields()},
		&v1alpha1.RemediationPolicy{}: {Transform: cache.TransformStripManagedFields()},
		&v1alpha1.Diagnosis{}:         {Transform: trimDiagnosis},
	}
}

// trimDiagnosis is [trim] for a cache.
func trimDiagnosis(object any) (any, error) {
	if d, ok := object.(*v1alpha1.Diagnosis); ok {
		trim(d)
	}
	return object, nil
}

// trim removes the fields of a Diagnosis that are not used from the cache, up to some 200 KiB. A
// cluster may have tens of thousands of Diagnoses.
func trim(d *v1alpha1.Diagnosis) {
	d.ManagedFields = nil
	if d.Spec.TargetSelector == nil { // otherwise its children inherit them
		trigger.KeepOrigin(d)
	}
	d.Status.Artifacts, d.Status.FailedPaths = nil, nil
	for _, s := range []*string{&d.Namespace, &d.Spec.OperationSet, &d.Spec.NodeName} {
		*s = one(*s)
	}
	ended, repairs := d.Status.Completed(), len(d.Status.Remediations) > 0 || d.Status.AwaitingApproval() != nil
	if !repairs && (ended || d.Spec.NodeName != "" && d.Spec.TargetSelector == nil) {
		d.Spec.Parameters = nil // only the agent and follow-ups of repairs need them from here on
	}
	if ended || repairs {
		for i := range d.Status.Results {
			res := &d.Status.Results[i]
			res.Operation, res.Reason, res.State, res.Values = one(res.Operation), one(res.Reason), one(res.State), nil
			if rem := d.Status.Remediation(int(res.ID)); rem == nil || rem.Verb != v1alpha1.RemediationRun {
				res.Message, res.Duration = "", nil // Events quote those of repairs
			}
		}
		return
	}
	d.Status.Results = nil
}

// one interns a text of which there are many copies.
func one[T ~string](text T) T { return unique.Make(text).Value() }

// diagnosisPage is how many Diagnoses are read at once. Each takes up to some 200 KiB: admission
// policies bound what users of namespaces write.
const diagnosisPage = 200

// NewInformer creates the informers of the manager's cache. The informer of Diagnoses never holds
// more than a page of untrimmed ones, even if the API server does not stream them (WatchList,
// Kubernetes 1.34): in one response, tens of thousands take gigabytes.
func NewInformer(from toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
	if _, ok := kind.(*v1alpha1.Diagnosis); ok {
		whole := toolscache.ToListerWatcherWithContext(from)
		from = &toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return listPages(ctx, whole, o)
			},
			WatchFuncWithContext: whole.WatchWithContext,
		}
	}
	return toolscache.NewSharedIndexInformer(from, kind, resync, by)
}

// listPages lists Diagnoses a page at a time, each trimmed before the next is read. It ignores the
// requested version and returns the newest: only that can be paged.
func listPages(ctx context.Context, from toolscache.ListerWithContext, o metav1.ListOptions) (runtime.Object, error) {
	o.ResourceVersion, o.ResourceVersionMatch, o.Limit, o.Continue = "", "", diagnosisPage, ""
	all := &internalversion.List{}
	for {
		answer, err := from.ListWithContext(ctx, o)
		if err != nil {
			return nil, err
		}
		page, ok := answer.(*v1alpha1.DiagnosisList)
		if !ok {
			return nil, fmt.Errorf("list Diagnoses: unexpected answer of type %T", answer)
		}
		for _, d := range page.Items {
			trim(&d)
			all.Items = append(all.Items, &d)
		}
		all.ListMeta = page.ListMeta
		if o.Continue = page.Continue; o.Continue == "" {
			return all, nil
		}
	}
}
