// Package v1alpha1 has the types of the API group kernosis.io: what a diagnosis runs
// ([Operation], [OperationSet]), what starts one ([Trigger]), one run with its outcome
// ([Diagnosis]), and what a repair is held to ([RemediationPolicy]).
//
// The types are data. The CustomResourceDefinitions in diagnose/api/crds and the copies in
// zz_generated.deepcopy.go are made from them by "make generate". What a schema can say
// is said by the markers here, so that the API server refuses it; what it can't (cycles
// of a graph, built-ins that there are) is told in a status condition.
//
// Field names follow KubeDiag's where it has the field.
//
// +kubebuilder:object:generate=true
// +groupName=kernosis.io
package v1alpha1
