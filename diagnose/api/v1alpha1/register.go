package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group and Version identify this API.
const (
	Group   = "kernosis.io"
	Version = "v1alpha1"
)

// Kinds of this API.
const (
	KindOperation         = "Operation"
	KindOperationSet      = "OperationSet"
	KindTrigger           = "Trigger"
	KindDiagnosis         = "Diagnosis"
	KindRemediationPolicy = "RemediationPolicy"
)

// LabelTrigger is the label of a Diagnosis with the name of the Trigger that created it.
const LabelTrigger = Group + "/trigger"

// LabelParent is the label of a Diagnosis that another one owns, such as the one whose
// targetSelector led to it, with the owner's UID.
const LabelParent = Group + "/parent"

// AnnotationFollows is the annotation of a Diagnosis that runs the OperationSet of another
// one again after a repair, to find out whether it helped and to retry it if the policy
// allows. Its value is NAME/ID: the other Diagnosis, and the id of the repair's graph node.
const AnnotationFollows = Group + "/follows"

// GroupVersion returns the group and version of all kinds in this package.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: Group, Version: Version} }

// AddToScheme registers the kinds with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(),
		&Operation{}, &OperationList{},
		&OperationSet{}, &OperationSetList{},
		&Trigger{}, &TriggerList{},
		&Diagnosis{}, &DiagnosisList{},
		&RemediationPolicy{}, &RemediationPolicyList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
