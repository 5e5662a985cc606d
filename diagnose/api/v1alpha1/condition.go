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
	// ConditionPlaced of a Diagnosis: the controller has found the node of its pod, and has
	// set spec.nodeName to it.
	ConditionPlaced = "Placed"
	// ConditionPaused of a RemediationPolicy: nothing is repaired at present.
	ConditionPaused = "Paused"
)

// Reasons of ConditionAccepted.
const (
	ReasonAccepted = "Accepted"
	ReasonInvalid  = "Invalid" // what no other reason says; the message has it

	// Of a graph.
	ReasonEmpty                = "Empty"    // no node but the start
	ReasonTooLarge             = "TooLarge" // more nodes or edges than are run
	ReasonIDMismatch           = "IDMismatch"
	ReasonStartOperation       = "StartOperation" // the start has an operation
	ReasonNoOperation          = "NoOperation"    // another node has none
	ReasonUnknownNode          = "UnknownNode"    // an edge to nowhere
	ReasonDoubledEdge          = "DoubledEdge"
	ReasonSecondSource         = "SecondSource" // a node, not the start, to which no edge leads
	ReasonUnreachableNode      = "UnreachableNode"
	ReasonCycle                = "Cycle"
	ReasonUnknownDependence    = "UnknownDependence" // no node, or the start
	ReasonDoubledDependence    = "DoubledDependence"
	ReasonDependenceNotOnAPath = "DependenceNotOnAPath" // some path to the node passes it by

	// Of what it names.
	ReasonUnknownOperation    = "UnknownOperation" // no Operation has the name
	ReasonUnknownBuiltin      = "UnknownBuiltin"
	ReasonUnknownOperationSet = "UnknownOperationSet" // no OperationSet has the name
	ReasonInvalidParameter    = "InvalidParameter"
	ReasonInvalidSchedule     = "InvalidSchedule"
	ReasonInvalidRegexp       = "InvalidRegexp"
)

// Reasons of ConditionComplete where it is True.
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
	ReasonTargetsSucceeded      = "TargetsSucceeded"  // of those that targetSelector chose, one at least has
	ReasonNoTargetSucceeded     = "NoTargetSucceeded"
)

// Reasons of ConditionComplete where it is False: what is waited for.
const (
	ReasonQueueFull       = "QueueFull"       // the node has too many others of its namespace
	ReasonAgentSilent     = "AgentSilent"     // the node's agent
	ReasonPodNotScheduled = "PodNotScheduled" // its pod is on no node yet
	ReasonTargetsRun      = "TargetsRun"      // the Diagnoses that it owns
)

// ReasonNodeOfPod is that of ConditionPlaced.
const ReasonNodeOfPod = "NodeOfPod"

// ReasonAllowed is that of ConditionRemediationAllowed where it is True.
const ReasonAllowed = "Allowed"

// Reasons of ConditionRemediationAllowed where it is False; Invalid and NodeNotFound too.
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
	ReasonAttemptsExhausted   = "AttemptsExhausted" // it has not helped often enough
	ReasonProblemResolved     = "ProblemResolved"   // before the repair
	ReasonWaitedTooLong       = "WaitedTooLong"     // nothing tells whether the problem lasts
	ReasonCooldownsFull       = "CooldownsFull"     // the policy has no room for another node
	ReasonProblemUnknown      = "ProblemUnknown"    // nothing tells whether the repair before it helped; of ConditionVerified too
	ReasonMadeBefore          = "MadeBefore"        // by an earlier Diagnosis; the run goes on behind it
	ReasonRefused             = "Refused"           // it can't be made of the objects as they are
)

// Reasons of ConditionVerified, which is of the repair that was allowed last. It is Unknown
// until its end, True where it has helped, and False where it has not. It stays Unknown
// with ReasonProblemUnknown for as long as nothing tells which.
const (
	ReasonRepairing = "Repairing" // it is allowed, and has not ended
	ReasonVerifying = "Verifying" // it has ended, and may help yet
	ReasonHelped    = "Helped"
	ReasonNotHelped = "NotHelped"
	ReasonMoot      = "Moot" // nothing was proven: the problem, or the node, was gone already
)

// ReasonNotPaused is that of ConditionPaused where it is False.
const ReasonNotPaused = "NotPaused"
