package lease

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Annotations and labels of a Lease.
const (
	// AnnotationTypes lists condition types, sorted, with commas between.
	AnnotationTypes = "kernosis.io/condition-types"
	// AnnotationDraining is when the agent began to shut down, as RFC 3339.
	AnnotationDraining = "kernosis.io/draining"
	// AnnotationVersion is the agent's version.
	AnnotationVersion = "kernosis.io/agent-version"

	// AnnotationHolders lists the node's live agents that run Diagnoses, by the holder name in a
	// Diagnosis' checkpoint, each with a stamp of its last renewal:
	// "n1/0123456789abcdef=2026-11-21T12:00:00Z", separated by commas.
	AnnotationHolders = "kernosis.io/holders"

	// AnnotationDegraded is what the agent lacks although it works, one line each.
	AnnotationDegraded = "kernosis.io/degraded"

	// LabelComponent with [ComponentAgent] is on each agent's Lease, so that other Leases of the
	// namespace need not be read.
	LabelComponent = "kernosis.io/component"
	ComponentAgent = "agent"
)

// What the controller writes on behalf of a silent agent. Reasons are API.
const (
	// Controller is the field manager of the controller's writes and the reporter of its Events.
	Controller = conditions.Controller
	// ReasonUnknown: the agent has reported the condition, but no longer does.
	ReasonUnknown = "AgentStatusUnknown"
	// ReasonNeverUpdated: no agent has ever reported the condition.
	ReasonNeverUpdated = "AgentStatusNeverUpdated"
)

const (
	prefix = "kernosis-"
	// maxName is the limit of an object's name.
	maxName = 253
	// maxVersion is far longer than "v1.2.3-4-g0123abc-dirty".
	maxVersion = 128
	// maxDegraded bounds [AnnotationDegraded].
	maxDegraded = 2000
)

// Name returns the name of a node's Lease: the node's name with a prefix, because the namespace
// has other Leases. A name that is too long ends in a hash.
func Name(node string) string {
	name := prefix + node
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(node))
	tail := "-" + hex.EncodeToString(sum[:8])
	return strings.TrimRight(name[:maxName-len(tail)], ".-") + tail
}

// NodeOf returns the node of an agent's Lease, or false for any other Lease. The holder is the
// node, and the Lease's name must match it, so that no Lease can affect another node.
func NodeOf(l *coordinationv1.Lease) (string, bool) {
	if l.Spec.HolderIdentity == nil || l.Labels[LabelComponent] != ComponentAgent {
		return "", false
	}
	node := *l.Spec.HolderIdentity
	return node, node != "" && l.Name == Name(node)
}

// TypesOf returns the condition types that a Lease lists, sorted. Types that an agent must not
// set, such as kubelet's own, are left out, because the list decides what is written.
func TypesOf(l *coordinationv1.Lease) []string {
	types, _ := checkTypes(strings.Split(l.Annotations[AnnotationTypes], ","))
	return types
}

// maxPatience bounds how long a Lease can make others wait for its agent.
const maxPatience = time.Hour + time.Hour/4

// Patience returns how long an agent may be quiet according to its Lease: the Lease's duration
// and a quarter more, at most maxPatience. 0: the Lease has no duration.
func Patience(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	lasts := time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	return min(max(lasts+lasts/4, 0), maxPatience)
}

// DrainingSince returns when the agent began to shut down; zero: it did not.
func DrainingSince(l *coordinationv1.Lease) time.Time {
	at, _ := time.Parse(time.RFC3339, l.Annotations[AnnotationDraining]) // zero if there is none
	return at
}

// checkTypes returns the types that an agent may set, sorted, each once, at most [conditions.MaxTypes], and
// how many were left out.
func checkTypes(list []string) (types []string, refused int) {
	for _, t := range list {
		switch {
		case t == "":
		case strings.Contains(t, ",") || conditions.CheckType(t) != nil:
			refused++
		default:
			types = append(types, t)
		}
	}
	slices.Sort(types)
	types = slices.Compact(types)
	if more := len(types) - conditions.MaxTypes; more > 0 {
		refused += more
		types = types[:conditions.MaxTypes]
	}
	return types, refused
}
