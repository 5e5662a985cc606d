// Package v1alpha1 defines the types of the API group kernosis.io: what a diagnosis runs
// ([Operation], [OperationSet]), what starts one ([Trigger]), one run and its outcome
// ([Diagnosis]), and the limits of repairs ([RemediationPolicy]).
//
// The types hold only data. "make generate" generates the CustomResourceDefinitions in
// diagnose/api/crds and the deep copies in zz_generated.deepcopy.go from them. The markers
// express everything that a schema can validate, so that the API server refuses invalid
// objects; a status condition reports the rest (cycles of a graph, unknown built-ins).
//
// Field names follow KubeDiag's where it has the field.
//
// +kubebuilder:object:generate=true
// +groupName=kernosis.io
package v1alpha1
