package v1alpha1

// Condition types.
const (
	// ConditionAccepted of an OperationSet, a Trigger or a RemediationPolicy: it is
	// valid and in use.
	ConditionAccepted = "Accepted"
	// ConditionComplete of a Diagnosis: it has ended, in which way says the reason.
	ConditionComplete = "Complete"
	// ConditionRemediationAllowed of a Diagnosis: its policy lets it repair.
	ConditionRemediationAllowed = "RemediationAllowed"
	// ConditionVerified of a Diagnosis that has repaired: the problem was gone in time.
	ConditionVerified = "Verified"
	// ConditionPaused of a RemediationPolicy: nothing is repaired at present.
	ConditionPaused = "Paused"
)

// Reasons of ConditionAccepted.
const (
	ReasonAccepted         = "Accepted"
	ReasonCycle            = "Cycle"
	ReasonSecondSource     = "SecondSource"
	ReasonUnreachableNode  = "UnreachableNode"
	ReasonUnknownNode      = "UnknownNode"      // an edge or a dependence to nowhere
	ReasonUnknownOperation = "UnknownOperation" // no Operation has the name
	ReasonIDMismatch       = "IDMismatch"       // an id is not the node's place
	ReasonStartOperation   = "StartOperation"   // the start has an operation
	ReasonNoOperation      = "NoOperation"      // another node has none
	ReasonUnknownBuiltin   = "UnknownBuiltin"
	ReasonInvalidParameter = "InvalidParameter"
	ReasonInvalidSchedule  = "InvalidSchedule"
	ReasonInvalidRegexp    = "InvalidRegexp"
	ReasonInvalid          = "Invalid" // anything else; the message has it
)

// Reasons of ConditionComplete.
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
	ReasonNodeSilent            = "NodeSilent"        // its agent does not answer
	ReasonNotAllowed            = "NotAllowed"        // outside the system namespace
	ReasonOutcomeUnknown        = "OutcomeUnknown"    // of a Remediate operation, after a crash
	ReasonRemediationIncomplete = "RemediationFailed" // one had repaired, a later one on its path failed
)

// Reasons of ConditionRemediationAllowed where it is False.
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
)
