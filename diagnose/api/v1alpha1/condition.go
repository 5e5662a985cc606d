package v1alpha1

// Condition types.
const (
	// ConditionAccepted reports whether an OperationSet, a Trigger or a RemediationPolicy is
	// valid and in use.
	ConditionAccepted = "Accepted"
	// ConditionComplete reports whether a Diagnosis has ended; its reason says how.
	ConditionComplete = "Complete"
	// ConditionRemediationAllowed reports whether the policies allow a Diagnosis to repair.
	ConditionRemediationAllowed = "RemediationAllowed"
	// ConditionVerified reports whether a repair of a Diagnosis helped.
	ConditionVerified = "Verified"
	// ConditionPlaced reports that the controller has found the node of a Diagnosis' pod and
	// sets spec.nodeName to it.
	ConditionPlaced = "Placed"
	// ConditionPaused reports whether a RemediationPolicy currently stops all repairs.
	ConditionPaused = "Paused"
)

// Reasons of ConditionAccepted. Mistakes in a graph have those of package graph.
const (
	ReasonAccepted = "Accepted"
	ReasonInvalid  = "Invalid" // any other mistake; the message names it

	// Mistakes in names and values.
	ReasonUnknownOperation    = "UnknownOperation" // no Operation or built-in has the name
	ReasonUnknownBuiltin      = "UnknownBuiltin"
	ReasonUnknownOperationSet = "UnknownOperationSet" // no OperationSet has the name
	ReasonInvalidParameter    = "InvalidParameter"
	ReasonInvalidSchedule     = "InvalidSchedule"
	ReasonInvalidRegexp       = "InvalidRegexp"
)

// Reasons of ConditionComplete while it is True.
const (
	ReasonPathSucceeded         = "PathSucceeded"
	ReasonNoPathSucceeded       = "NoPathSucceeded"
	ReasonCancelled             = "Cancelled"
	ReasonOperationSetNotFound  = "OperationSetNotFound"
	ReasonOperationSetNotReady  = "OperationSetNotReady"
	ReasonOperationSetChanged   = "OperationSetChanged" // while the Diagnosis ran
	ReasonNoTargets             = "NoTargets"
	ReasonNodeNotFound          = "NodeNotFound"
	ReasonPodNotFound           = "PodNotFound"
	ReasonNodeSilent            = "NodeSilent"        // its agent does not report
	ReasonNotAllowed            = "NotAllowed"        // outside the system namespace
	ReasonOutcomeUnknown        = "OutcomeUnknown"    // whether a repair was made is unknown
	ReasonRemediationIncomplete = "RemediationFailed" // a repair was made, a later operation on its path failed
	ReasonTargetsSucceeded      = "TargetsSucceeded"  // at least one target of targetSelector has succeeded
	ReasonNoTargetSucceeded     = "NoTargetSucceeded"
)

// Reasons of ConditionComplete while it is False: what the Diagnosis waits for.
const (
	ReasonQueueFull       = "QueueFull"       // the node has too many other Diagnoses of its namespace
	ReasonAgentSilent     = "AgentSilent"     // the node's agent does not report
	ReasonPodNotScheduled = "PodNotScheduled" // its pod is not on a node yet
	ReasonTargetsRun      = "TargetsRun"      // the Diagnoses that it owns run
)

// ReasonNodeOfPod is the reason of ConditionPlaced.
const ReasonNodeOfPod = "NodeOfPod"

// ReasonAllowed is the reason of ConditionRemediationAllowed while it is True.
const ReasonAllowed = "Allowed"

// Reasons of ConditionRemediationAllowed while it is False, besides Invalid, NodeNotFound and
// NotAllowed.
const (
	ReasonObserveOnly         = "ObserveOnly"
	ReasonAwaitingApproval    = "AwaitingApproval"
	ReasonBudgetExhausted     = "BudgetExhausted"
	ReasonCooldown            = "Cooldown"
	ReasonPaused              = "Paused"
	ReasonTooManyUnhealthy    = "TooManyUnhealthy"
	ReasonOutsideWindow       = "OutsideMaintenanceWindow"
	ReasonControlPlaneSkipped = "ControlPlaneSkipped"
	ReasonNoPolicy            = "NoPolicy"
	ReasonNodeUnderRepair     = "NodeUnderRepair"   // by another Diagnosis
	ReasonEscalationOrder     = "EscalationOrder"   // another repair comes first
	ReasonAttemptsExhausted   = "AttemptsExhausted" // it was made as often as allowed
	ReasonProblemResolved     = "ProblemResolved"   // before the repair
	ReasonWaitedTooLong       = "WaitedTooLong"     // nothing shows whether the problem lasts
	ReasonCooldownsFull       = "CooldownsFull"     // the policy has no room for another node
	ReasonProblemUnknown      = "ProblemUnknown"    // nothing shows whether the previous repair helped; also of ConditionVerified
	ReasonMadeBefore          = "MadeBefore"        // by an earlier Diagnosis; the run continues after it
	ReasonRefused             = "Refused"           // impossible with the objects as they are, or the API server forbids it
	ReasonRepairsDisabled     = "RepairsDisabled"   // the controller changes no Nodes and pods
)

// Reasons of ConditionVerified, which is about the repair that was allowed last. It is True if
// the repair helped, False if it did not, and Unknown until that is known. It stays Unknown
// with ReasonProblemUnknown while nothing shows whether the repair helped, and with ReasonMoot.
const (
	ReasonRepairing = "Repairing" // allowed, and not ended yet
	ReasonVerifying = "Verifying" // ended, and may still help
	ReasonHelped    = "Helped"
	ReasonNotHelped = "NotHelped"
	ReasonMoot      = "Moot" // nothing was proven: the problem or the node was already gone
)

// ReasonNotPaused is the reason of ConditionPaused while it is False.
const ReasonNotPaused = "NotPaused"
