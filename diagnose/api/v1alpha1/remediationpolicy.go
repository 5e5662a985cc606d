package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=remediationpolicies,singular=remediationpolicy,scope=Cluster,categories=kernosis
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Max-Nodes",type=integer,JSONPath=`.spec.budget.maxNodes`
// +kubebuilder:printcolumn:name="Max-Percent",type=integer,JSONPath=`.spec.budget.maxPercent`
// +kubebuilder:printcolumn:name="Limit",type=integer,JSONPath=`.status.budget.limit`
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.budget.used`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.budget.nodes`,priority=1
// +kubebuilder:printcolumn:name="Not-Ready",type=integer,JSONPath=`.status.budget.notReady`,priority=1
// +kubebuilder:printcolumn:name="Paused",type=string,JSONPath=`.status.conditions[?(@.type=="Paused")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Paused")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// RemediationPolicy says what repairs are held to. Where several choose a node, each must
// allow a repair. A node that none chooses is not repaired.
type RemediationPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's own.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec has the limits.
	// +optional
	// +default={}
	Spec RemediationPolicySpec `json:"spec,omitzero"`

	// status has the repairs that use the budget up.
	// +optional
	Status RemediationPolicyStatus `json:"status,omitzero"`
}

// +kubebuilder:object:root=true

// RemediationPolicyList is a list of RemediationPolicies.
type RemediationPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []RemediationPolicy `json:"items"`
}

// RemediationMode says what becomes of a repair.
//
// +kubebuilder:validation:Enum=Observe;Approve;Enforce
type RemediationMode string

// Modes.
const (
	ModeObserve RemediationMode = "Observe" // it is only told
	ModeApprove RemediationMode = "Approve" // a person must allow each
	ModeEnforce RemediationMode = "Enforce" // it is done, within the limits
)

// RemediationPolicySpec has the limits of repairs.
type RemediationPolicySpec struct {
	// mode says what becomes of a repair: Observe tells what would have been done,
	// Approve waits for a person, Enforce does it.
	// +optional
	// +default="Observe"
	Mode RemediationMode `json:"mode,omitempty"`

	// nodeSelector chooses the nodes that the policy is for. An empty one chooses all.
	// +optional
	// +default={}
	NodeSelector LabelSelector `json:"nodeSelector,omitzero"`

	// includeControlPlane lets the policy repair nodes of the control plane as well.
	// +optional
	// +default=false
	IncludeControlPlane bool `json:"includeControlPlane,omitempty"`

	// pause stops all repairs of the policy, those that wait as well.
	// +optional
	// +default=false
	Pause bool `json:"pause,omitempty"`

	// budget is how many nodes may be under repair at once.
	// +optional
	// +default={}
	Budget Budget `json:"budget,omitzero"`

	// cooldownPerNode is the time after a repair in which its node gets no other, but for
	// the next one of an escalation.
	// +optional
	// +default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('720h')",message="must be from 0s to 720h"
	CooldownPerNode *metav1.Duration `json:"cooldownPerNode,omitempty"`

	// pauseWhenUnhealthyPercent stops all repairs while at least so many of the chosen
	// nodes are not ready: the fault is then not one of nodes. One node alone is never too
	// many. 100: only when all are.
	// +optional
	// +default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	PauseWhenUnhealthyPercent int32 `json:"pauseWhenUnhealthyPercent,omitempty"`

	// verifyWithin is the time in which the problem must be gone after a repair, else the
	// repair has failed.
	// +optional
	// +default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="must be from 1s to 24h"
	VerifyWithin metav1.Duration `json:"verifyWithin,omitzero"`

	// escalation puts repairs in order: one is done only where those of lower order have
	// not helped. Operations that are not listed are not held to an order.
	// +optional
	// +listType=map
	// +listMapKey=operation
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.order == b.order))",message="two steps have the same order"
	Escalation []EscalationStep `json:"escalation,omitempty"`

	// maintenanceWindows are the times in which repairs are done. None: always.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MaintenanceWindows []MaintenanceWindow `json:"maintenanceWindows,omitempty"`
}

// Budget is how many nodes may be under repair at once; the smaller of its numbers
// counts. Nodes that are cordoned or not ready for another reason use it up too.
type Budget struct {
	// maxNodes is a number of nodes.
	// +optional
	// +default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=256
	MaxNodes *int32 `json:"maxNodes,omitempty"`

	// maxPercent is a share of the chosen nodes, rounded down, but of more than 0 % at
	// least one node.
	// +optional
	// +default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxPercent *int32 `json:"maxPercent,omitempty"`
}

// EscalationStep is a repair with its place in the order.
type EscalationStep struct {
	// operation is the name of the Operation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Operation string `json:"operation"`

	// order is the place: the lowest comes first.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Order int32 `json:"order"`

	// timeout is for how long the next step waits for this one to help; the policy's
	// verifyWithin where it is absent.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="must be from 1s to 24h"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// attempts is how often it is tried before the next step's turn comes. Each try after
	// the first is made by another Diagnosis, which runs the OperationSet again.
	// +optional
	// +default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	Attempts int32 `json:"attempts,omitempty"`
}

// MaintenanceWindow is a time that comes again.
type MaintenanceWindow struct {
	// schedule is when it begins, in five fields as cron has them.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z*/,?-]+( +[0-9A-Za-z*/,?-]+){4}$`
	Schedule string `json:"schedule"`

	// duration is how long it lasts.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="must be from 1m to 168h"
	Duration metav1.Duration `json:"duration"`

	// timeZone is the schedule's, as in the IANA database.
	// +optional
	// +default="UTC"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$`
	TimeZone string `json:"timeZone,omitempty"`
}

// RemediationPolicyStatus has the repairs that use the budget up, and how much is used.
type RemediationPolicyStatus struct {
	// conditions are authoritative: Accepted says whether the policy is in use, Paused
	// whether and why nothing is repaired.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// budget is how much of the budget is used. It is written every 5 s at most, and only
	// where it has changed.
	// +optional
	Budget *BudgetUse `json:"budget,omitempty"`

	// repairs are those under way, and those whose cooldown lasts. An entry is taken by
	// an update of this object, so that two can't take the same.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=512
	Repairs []Repair `json:"repairs,omitempty"`

	// cooldowns are the oldest of those that have ended, where repairs has no room for
	// them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3584
	Cooldowns []Cooldown `json:"cooldowns,omitempty"`
}

// BudgetUse is how much of a policy's budget is used.
type BudgetUse struct {
	// nodes is how many nodes the policy repairs: maxPercent is of these.
	// +required
	// +kubebuilder:validation:Minimum=0
	Nodes int32 `json:"nodes"`

	// notReady is how many of these are not ready.
	// +required
	// +kubebuilder:validation:Minimum=0
	NotReady int32 `json:"notReady"`

	// limit is how many may be under repair at once.
	// +required
	// +kubebuilder:validation:Minimum=0
	Limit int32 `json:"limit"`

	// used is how many are under repair, or out of service for another reason.
	// +required
	// +kubebuilder:validation:Minimum=0
	Used int32 `json:"used"`

	// by names the first of those that use it, and why.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=640
	By []string `json:"by,omitempty"`
}

// Cooldown is what is kept of a repair that has ended, where there are many.
type Cooldown struct {
	// node is the node's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`

	// endTime is when the repair ended.
	// +required
	EndTime metav1.Time `json:"endTime"`
}

// Repair is one of a node.
type Repair struct {
	// node is the node's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`

	// diagnosis is the UID of the Diagnosis that repairs.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Diagnosis types.UID `json:"diagnosis"`

	// operation is the name of the Operation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Operation string `json:"operation"`

	// holder is the controller that holds the entry for the Diagnosis. Only it acts on the
	// entry; another takes it over first.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Holder string `json:"holder,omitempty"`

	// startTime is when the entry was taken.
	// +required
	StartTime metav1.Time `json:"startTime"`

	// endTime is when the repair was seen to have helped, or was given up. Until then it
	// uses the budget up.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
}
