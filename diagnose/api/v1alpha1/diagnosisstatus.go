package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of a Diagnosis' status that its writers keep to. Those of the schema are
// wider: it counts characters, and each list by itself.
const (
	MaxStatusBytes  = 256 << 10 // the status as JSON
	MaxResultBytes  = 2 << 10   // names and values of one result
	MaxMessageBytes = 1 << 10   // a message
	MaxFailedPaths  = 32
	MaxArtifacts    = 64
)

// Phase sums up a Diagnosis for people.
//
// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed;Cancelled;Unknown
type Phase string

// Phases.
const (
	PhasePending   Phase = "Pending"   // nobody has begun
	PhaseRunning   Phase = "Running"   // operations run
	PhaseSucceeded Phase = "Succeeded" // a path came to its end
	PhaseFailed    Phase = "Failed"    // none did
	PhaseCancelled Phase = "Cancelled"
	PhaseUnknown   Phase = "Unknown" // the outcome of a repair isn't known: a person must look
)

// Ended reports whether nothing more will happen.
func (p Phase) Ended() bool {
	switch p {
	case PhaseSucceeded, PhaseFailed, PhaseCancelled, PhaseUnknown:
		return true
	default:
		return false
	}
}

// DiagnosisStatus is what came of a Diagnosis.
type DiagnosisStatus struct {
	// conditions are authoritative. Complete says whether it has ended and how,
	// RemediationAllowed whether it may repair, Verified whether a repair helped.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// phase sums up the conditions.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// observedGeneration is that of the spec which the status is about.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// subject is what it is about, for people: a pod as shop/db-0, a device, a node.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Subject string `json:"subject,omitempty"`

	// action is what was done or would have been, for people: cordon, cordon (would).
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Action string `json:"action,omitempty"`

	// startTime is when the first operation began.
	// +optional
	StartTime *metav1.MicroTime `json:"startTime,omitempty"`

	// completionTime is when it ended.
	// +optional
	CompletionTime *metav1.MicroTime `json:"completionTime,omitempty"`

	// verdict is the cause: that of the last operation with one on the succeeded path.
	// +optional
	Verdict *Verdict `json:"verdict,omitempty"`

	// succeededPath is the path that came to its end.
	// +optional
	SucceededPath Path `json:"succeededPath,omitempty"`

	// failedPaths are the first paths that failed, each up to the node that did.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	FailedPaths []Path `json:"failedPaths,omitempty"`

	// failedPathCount is how many paths failed, in decimal.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	// +kubebuilder:validation:Pattern=`^[0-9]+$`
	FailedPathCount string `json:"failedPathCount,omitempty"`

	// results are those of the nodes of the graph that ran, by id.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=256
	Results []Result `json:"results,omitempty"`

	// artifacts are files that operations left on nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Artifacts []Artifact `json:"artifacts,omitempty"`

	// plan is what would be repaired, where an approval is needed for it.
	// +optional
	Plan *Plan `json:"plan,omitempty"`

	// checkpoint is what a run goes on from after an interruption.
	// +optional
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`

	// targets counts what targetSelector chose.
	// +optional
	Targets *Targets `json:"targets,omitempty"`
}

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

	// startTime is when the first try began.
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

// Plan is what would be repaired.
type Plan struct {
	// digest is that of the steps and of what they are about.
	// +required
	Digest Digest `json:"digest"`

	// steps are the repairs, in order.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Steps []PlanStep `json:"steps"`
}

// PlanStep is one repair.
type PlanStep struct {
	// id is that of the graph's node.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ID int32 `json:"id"`

	// operation is the name of the Operation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Operation string `json:"operation"`

	// target is what it changes, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Target string `json:"target,omitempty"`
}

// Checkpoint is what a run goes on from. Which nodes have run is in results.
type Checkpoint struct {
	// holder is who runs it: nobody else may until time is too long ago.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Holder string `json:"holder"`

	// time is when the holder last wrote.
	// +required
	Time metav1.MicroTime `json:"time"`

	// running is the id of the graph's node that runs.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	Running *int32 `json:"running,omitempty"`

	// intent is written before a repair begins and taken away once its outcome is known.
	// A run that finds one of its own does not repeat that repair.
	// +optional
	Intent *Intent `json:"intent,omitempty"`
}

// Intent says that a repair is about to begin.
type Intent struct {
	// id is that of the graph's node.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ID int32 `json:"id"`

	// operation is the name of the Operation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Operation string `json:"operation"`

	// time is when it was written.
	// +required
	Time metav1.MicroTime `json:"time"`
}

// Targets counts the Diagnoses that a targetSelector led to.
type Targets struct {
	// matched is how many targets it chose.
	// +required
	// +kubebuilder:validation:Minimum=0
	Matched int32 `json:"matched"`

	// created is how many of them got a Diagnosis.
	// +required
	// +kubebuilder:validation:Minimum=0
	Created int32 `json:"created"`

	// succeeded is how many of these have succeeded.
	// +required
	// +kubebuilder:validation:Minimum=0
	Succeeded int32 `json:"succeeded"`

	// failed is how many of these ended in another way.
	// +required
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed"`
}
