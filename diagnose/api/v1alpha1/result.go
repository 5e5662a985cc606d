package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Verdict is a cause, as a reason and a message.
type Verdict struct {
	// reason is a stable CamelCase name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9]*$`
	Reason string `json:"reason"`

	// message describes the cause.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// ResultState is the state of a graph node's run.
//
// +kubebuilder:validation:Enum=Running;Succeeded;Failed;Refuted;WouldRun;Withheld;AwaitingApproval;Cancelled;Unknown
type ResultState string

// Result states.
const (
	ResultRunning          ResultState = "Running"
	ResultSucceeded        ResultState = "Succeeded"
	ResultFailed           ResultState = "Failed"           // it could not act or check
	ResultRefuted          ResultState = "Refuted"          // a Check excludes its cause
	ResultWouldRun         ResultState = "WouldRun"         // dry run: the policy only observes
	ResultWithheld         ResultState = "Withheld"         // the policy does not allow it now
	ResultAwaitingApproval ResultState = "AwaitingApproval" // a person must approve it
	ResultCancelled        ResultState = "Cancelled"
	ResultUnknown          ResultState = "Unknown" // interrupted; it may have changed something
)

// Result is the result of a graph node.
//
// +kubebuilder:validation:XValidation:rule="!has(self.values) || self.values.map(k, k.size() + self.values[k].size()).sum() <= 2048",fieldPath=".values",message="names and values together exceed 2048 characters"
type Result struct {
	// id is the id of the graph node.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ID int32 `json:"id"`

	// operation is the name of the Operation that ran.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Operation string `json:"operation,omitempty"`

	// state is the state of the operation.
	// +required
	State ResultState `json:"state"`

	// reason is the CamelCase reason of a verdict, refusal or failure.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`

	// message has details.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// startTime is when the first attempt began, by the node's clock. For a repair by the
	// controller it is duration before the node learned of its end.
	// +optional
	StartTime *metav1.MicroTime `json:"startTime,omitempty"`

	// duration is how long all attempts took together.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	Duration *metav1.Duration `json:"duration,omitempty"`

	// attempts is the number of attempts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempts int32 `json:"attempts,omitempty"`

	// values are what the operation found, at most 2 KiB in total.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Values map[string]ResultValue `json:"values,omitempty"`

	// truncated reports that values or the message were cut to stay within limits. The
	// agent's own record keeps up to 8 KiB of values, artifacts keep longer output.
	// +optional
	Truncated bool `json:"truncated,omitempty"`
}

// ResultValue is the text of one result.
//
// +kubebuilder:validation:MaxLength=2048
type ResultValue = string

// Artifact is a file that an operation left on a node.
type Artifact struct {
	// name is the file's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	Name string `json:"name"`

	// id is the id of the graph node that created it.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ID int32 `json:"id"`

	// node is the node that has the file.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`

	// size is the file's size in bytes.
	// +required
	Size resource.Quantity `json:"size"`

	// sha256 is the file's digest.
	// +required
	SHA256 Digest `json:"sha256"`

	// truncated reports that the file was cut by its size limit or the disk budget.
	// +optional
	Truncated bool `json:"truncated,omitempty"`
}
