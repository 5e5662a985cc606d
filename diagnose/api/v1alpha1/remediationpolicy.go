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

// RemediationPolicy limits repairs. If several policies select a node, each must allow a
// repair. A node that no policy selects is not repaired.
type RemediationPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec specifies the limits.
	// +optional
	// +default={}
	Spec RemediationPolicySpec `json:"spec,omitzero"`

	// status reports the repairs that use the budget.
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

// RemediationMode specifies what happens to a repair.
//
// +kubebuilder:validation:Enum=Observe;Approve;Enforce
type RemediationMode string

// Modes.
const (
	ModeObserve RemediationMode = "Observe" // dry run: it is only reported
	ModeApprove RemediationMode = "Approve" // a person must approve each
	ModeEnforce RemediationMode = "Enforce" // it is made, within the limits
)

// RemediationPolicySpec specifies the limits of repairs.
type RemediationPolicySpec struct {
	// mode specifies what happens to a repair: Observe only reports it, Approve waits for a
	// person's approval, Enforce makes it.
	// +optional
	// +default="Observe"
	Mode RemediationMode `json:"mode,omitempty"`

	// nodeSelector selects the nodes that the policy applies to. An empty one selects all.
	// +optional
	// +default={}
	NodeSelector LabelSelector `json:"nodeSelector,omitzero"`

	// includeControlPlane allows repairs of control plane nodes, too.
	// +optional
	// +default=false
	IncludeControlPlane bool `json:"includeControlPlane,omitempty"`

	// pause stops all repairs of the policy that have not begun, including waiting ones.
	// +optional
	// +default=false
	Pause bool `json:"pause,omitempty"`

	// budget limits how many nodes may be under repair at once. The smaller limit applies.
	// +optional
	// +default={}
	Budget Budget `json:"budget,omitzero"`

	// cooldownPerNode is how long after a repair its node gets no other, except the next one
	// of an escalation.
	// +optional
	// +default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('720h')",message="must be from 0s to 720h"
	CooldownPerNode *metav1.Duration `json:"cooldownPerNode,omitempty"`

	// pauseWhenUnhealthyPercent stops all repairs while at least this percentage of the
	// policy's nodes, and at least two, are not ready: the cause is then not in the nodes.
	// 100 means all nodes.
	// +optional
	// +default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	PauseWhenUnhealthyPercent int32 `json:"pauseWhenUnhealthyPercent,omitempty"`

	// verifyWithin is the time after a repair in which the problem must be gone and the node
	// ready. Otherwise it has not helped.
	// +optional
	// +default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="must be from 1s to 24h"
	VerifyWithin metav1.Duration `json:"verifyWithin,omitzero"`

	// escalation orders repairs: one is made only if those of lower order did not help.
	// Operations that are not listed have no order.
	// +optional
	// +listType=map
	// +listMapKey=operation
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.order == b.order))",message="two steps have the same order"
	Escalation []EscalationStep `json:"escalation,omitempty"`

	// maintenanceWindows are the times in which repairs may begin. If empty, always.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MaintenanceWindows []MaintenanceWindow `json:"maintenanceWindows,omitempty"`
}

// Budget limits how many nodes may be under repair at once. The smaller of its limits
// applies. Nodes that are cordoned or not ready for another reason count, too.
type Budget struct {
	// maxNodes is the maximum number of nodes.
	// +optional
	// +default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=256
	MaxNodes *int32 `json:"maxNodes,omitempty"`

	// maxPercent is a percentage of the policy's nodes, rounded down, but at least one node
	// unless it is 0.
	// +optional
	// +default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxPercent *int32 `json:"maxPercent,omitempty"`
}

// EscalationStep is a repair and its place in the order.
type EscalationStep struct {
	// operation is the name of the Operation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Operation string `json:"operation"`

	// order is the place of the step. The lowest is first.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Order int32 `json:"order"`

	// timeout is the verifyWithin of this step, for which the next one waits. Defaults to
	// that of the policy.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="must be from 1s to 24h"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// attempts is how often the repair is tried before the next step. Another Diagnosis makes
	// each attempt after the first by running the OperationSet again.
	// +optional
	// +default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	Attempts int32 `json:"attempts,omitempty"`
}

// MaintenanceWindow is a recurring period of time.
type MaintenanceWindow struct {
	// schedule is when the window begins, as a five-field cron expression.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z*/,?-]+( +[0-9A-Za-z*/,?-]+){4}$`
	Schedule string `json:"schedule"`

	// duration is how long the window lasts.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="must be from 1m to 168h"
	Duration metav1.Duration `json:"duration"`

	// timeZone is the IANA time zone of the schedule.
	// +optional
	// +default="UTC"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$`
	TimeZone string `json:"timeZone,omitempty"`
}

// RemediationPolicyStatus reports the repairs that use the budget, and how much is used.
type RemediationPolicyStatus struct {
	// conditions are authoritative. Accepted reports whether the policy is in use, Paused
	// whether it stops all repairs, and why.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// budget reports how much of the budget is used. It is updated at most every 5 s, and
	// only if it has changed.
	// +optional
	Budget *BudgetUse `json:"budget,omitempty"`

	// repairs lists repairs under way and those in their cooldown. An entry is taken by an
	// update of this object, so no two Diagnoses can take the same one.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=512
	Repairs []Repair `json:"repairs,omitempty"`

	// cooldowns lists the repairs that ended first, if repairs has no room for them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3584
	Cooldowns []Cooldown `json:"cooldowns,omitempty"`
}

// BudgetUse reports how much of a policy's budget is used.
type BudgetUse struct {
	// nodes is how many nodes the policy may repair, the base of maxPercent.
	// +required
	// +kubebuilder:validation:Minimum=0
	Nodes int32 `json:"nodes"`

	// notReady is how many of these nodes are not ready.
	// +required
	// +kubebuilder:validation:Minimum=0
	NotReady int32 `json:"notReady"`

	// limit is how many nodes may be under repair at once.
	// +required
	// +kubebuilder:validation:Minimum=0
	Limit int32 `json:"limit"`

	// used is how many nodes are under repair, or out of service for another reason.
	// +required
	// +kubebuilder:validation:Minimum=0
	Used int32 `json:"used"`

	// by lists the first nodes that use the budget, and why.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=640
	By []string `json:"by,omitempty"`
}

// Cooldown is the short record of a repair that has ended.
type Cooldown struct {
	// node is the name of the node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`

	// endTime is when the repair ended.
	// +required
	EndTime metav1.Time `json:"endTime"`
}

// Repair is a repair of a node.
type Repair struct {
	// node is the name of the node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`

	// diagnosis is the UID of the Diagnosis that makes the repair.
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

	// holder is the controller that holds the entry. Only it acts on the entry; another takes
	// it over first.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Holder string `json:"holder,omitempty"`

	// startTime is when the entry was taken.
	// +required
	StartTime metav1.Time `json:"startTime"`

	// endTime is when the repair was found to have helped, or given up. Until then it uses
	// the budget.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`

	// before is the repair of an escalation that this one follows. Its entry returns if this
	// repair does not begin.
	// +optional
	Before *RepairBefore `json:"before,omitempty"`
}

// RepairBefore is a repair whose entry the next one of an escalation has taken.
type RepairBefore struct {
	// diagnosis is the UID of the Diagnosis that made the repair.
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

	// startTime is when the entry was taken.
	// +required
	StartTime metav1.Time `json:"startTime"`

	// endTime is when the entry was returned, unless it was still held.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
}
