package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kernosis,shortName=opset
// +kubebuilder:printcolumn:name="Ready",type=boolean,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Paths",type=string,JSONPath=`.status.pathCount`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// OperationSet is the directed acyclic graph that a diagnosis runs.
type OperationSet struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec specifies the graph.
	// +required
	Spec OperationSetSpec `json:"spec"`

	// status reports whether the graph can run.
	// +optional
	Status OperationSetStatus `json:"status,omitzero"`
}

// +kubebuilder:object:root=true

// OperationSetList is a list of OperationSets.
type OperationSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []OperationSet `json:"items"`
}

// OperationSetSpec specifies the graph.
type OperationSetSpec struct {
	// adjacencyList lists the nodes of the graph, each at the index that is its id. The first
	// is the start and has no operation. Paths are tried in the order in which nodes list the
	// next ones.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=2
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="!has(self[0].operation)",message="the first node is the start and must have no operation"
	// +kubebuilder:validation:XValidation:rule="self.filter(n, !has(n.operation)).size() <= 1",message="each node but the first needs an operation"
	// +kubebuilder:validation:XValidation:rule="self.all(n, !has(n.to) || n.to.all(i, i < self.size()))",message="to names a node that is not in the list"
	// +kubebuilder:validation:XValidation:rule="self.all(n, !has(n.dependences) || n.dependences.all(i, i < self.size()))",message="dependences names a node that is not in the list"
	AdjacencyList []Node `json:"adjacencyList"`
}

// MaxNodes is the maximum number of nodes in a graph, including the start.
const MaxNodes = 256

// Node is a node of the graph.
type Node struct {
	// id is the node's index in the list, from 0.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ID int32 `json:"id"`

	// to lists the next nodes, in the order in which they are tried. Each begins its own
	// path.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=255
	To []int32 `json:"to,omitempty"`

	// operation is the name of the Operation or built-in to run. The start has none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Operation string `json:"operation,omitempty"`

	// dependences lists nodes on each path to this one, whose results are passed to it.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=255
	Dependences []int32 `json:"dependences,omitempty"`
}

// Path lists the ids of the nodes on a path, from the one after the start to the last.
//
// +listType=atomic
// +kubebuilder:validation:MaxItems=256
// +kubebuilder:validation:items:Minimum=0
// +kubebuilder:validation:items:Maximum=255
type Path []int32

// MaxPaths is the maximum number of paths that a status lists.
const MaxPaths = 100

// OperationSetStatus reports whether the graph can run.
type OperationSetStatus struct {
	// conditions are authoritative. Accepted reports whether the graph can run, and if not,
	// why.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ready reports whether Accepted is True for the current spec.
	// +optional
	// +default=false
	Ready bool `json:"ready"`

	// paths lists the first 100 paths, in the order in which they are tried.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Paths []Path `json:"paths,omitempty"`

	// pathCount is the number of paths, in decimal: a graph of 256 nodes can have more than
	// any integer type holds.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	// +kubebuilder:validation:Pattern=`^[0-9]+$`
	PathCount string `json:"pathCount,omitempty"`
}
