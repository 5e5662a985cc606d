package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Verdict is a cause in a word and in a sentence.
type Verdict struct {
	// reason is stable, CamelCase.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9]*$`
	Reason string `json:"reason"`

	// message has the facts.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// ResultState is how the run of a node ended.
//
// +kubebuilder:validation:Enum=Running;Succeeded;Failed;Refuted;WouldRun;Withheld;AwaitingApproval;Cancelled;Unknown
type ResultState string

// Result states.
const (
	ResultRunning          ResultState = "Running"
	ResultSucceeded        ResultState = "Succeeded"
	ResultFailed           ResultState = "Failed"           // it could not do or look
	ResultRefuted          ResultState = "Refuted"          // a Check answered no
	ResultWouldRun         ResultState = "WouldRun"         // the policy only observes
	ResultWithheld         ResultState = "Withheld"         // the policy does not allow it now
	ResultAwaitingApproval ResultState = "AwaitingApproval" // a person must allow it
	ResultCancelled        ResultState = "Cancelled"
	ResultUnknown          ResultState = "Unknown" // interrupted, it may have changed something
)

// Result is what came of a node of the graph.
//
// +kubebuilder:validation:XValidation:rule="!has(self.values) || self.values.map(k, k.size() + self.values[k].size()).sum() <= 2048",fieldPath=".values",message="names and values have more than 2048 characters together"
type Result struct {
	// id is the node's.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ID int32 `json:"id"`

	// operation is the name of the Operation that ran.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Operation string `json:"operation,omitempty"`

	// state is how it ended.
	// +required
	State ResultState `json:"state"`

	// reason is a word for it, CamelCase: that of a verdict, a refusal or a failure.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`

	// message says more.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// startTime is when the first try began, by the node's clock; of a repair that the
	// controller has made, duration before the node knew that it had ended.
	// +optional
	StartTime *metav1.MicroTime `json:"startTime,omitempty"`

	// duration is how long it took, all tries together.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	Duration *metav1.Duration `json:"duration,omitempty"`

	// attempts is how often it was tried.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempts int32 `json:"attempts,omitempty"`

	// values are what it found, at most 2 KiB together.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Values map[string]ResultValue `json:"values,omitempty"`

	// truncated says that values were cut or left out to keep to the bounds. The whole is
	// with the agent's own record of the run, and what is declared as such an artifact.
	// +optional
	Truncated bool `json:"truncated,omitempty"`
}

// ResultValue is the text of one result.
//
// +kubebuilder:validation:MaxLength=2048
type ResultValue = string

// Artifact is a file that an operation left on a node.
type Artifact struct {
	// name is the file's.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	Name string `json:"name"`

	// id is that of the graph's node that made it.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ID int32 `json:"id"`

	// node is where the file is.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`

	// size is the file's, in bytes.
	// +required
	Size resource.Quantity `json:"size"`

	// sha256 is that of the file.
	// +required
	SHA256 Digest `json:"sha256"`

	// truncated says that the file was cut where the disk budget was used up.
	// +optional
	Truncated bool `json:"truncated,omitempty"`
}
