package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group and Version name this API.
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

// LabelTrigger is the label of a Diagnosis with the name of the Trigger that made it.
const LabelTrigger = Group + "/trigger"

// LabelParent is the label of a Diagnosis that a targetSelector led to, with the UID of the
// Diagnosis that has it.
const LabelParent = Group + "/parent"

// AnnotationFollows is that of a Diagnosis which runs the OperationSet of another one again
// behind a repair, to see whether it helped, and to try it once more where the policy
// allows that: NAME/ID, with the id of the repair's node of the graph.
const AnnotationFollows = Group + "/follows"

// GroupVersion returns the group and version of all kinds here.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: Group, Version: Version} }

// AddToScheme makes the kinds known to a scheme.
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
