package controller

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/reporter/kube/leader"
)

// Scheme returns the kinds that a manager needs: Kubernetes' own, and those of diagnoses.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	return s, nil
}

// Mapper knows where the kinds of diagnoses are, whether they are installed or not.
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

// ByObject says what is kept of the kinds of diagnoses, for the manager. An ended Diagnosis
// is kept without what its operations have found: read it from the API server before its
// results are looked at, and never write a whole object from the cache.
func ByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&v1alpha1.Operation{}:         {Transform: cache.TransformStripManagedFields()},
		&v1alpha1.OperationSet{}:      {Transform: cache.TransformStripManagedFields()},
		&v1alpha1.Trigger{}:           {Transform: cache.TransformStripManagedFields()},
		&v1alpha1.RemediationPolicy{}: {Transform: cache.TransformStripManagedFields()},
		&v1alpha1.Diagnosis{}:         {Transform: trimDiagnosis},
	}
}

// trimDiagnosis leaves out of an ended Diagnosis what nobody looks at before it is deleted:
// up to some 200 KiB.
func trimDiagnosis(object any) (any, error) {
	d, ok := object.(*v1alpha1.Diagnosis)
	if !ok {
		return object, nil
	}
	d.ManagedFields = nil
	if _, ended := completed(d); !ended {
		return d, nil
	}
	d.Status.Artifacts, d.Status.FailedPaths = nil, nil
	for i := range d.Status.Results {
		d.Status.Results[i].Values, d.Status.Results[i].Message = nil, ""
	}
	return d, nil
}
