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

// What a Lease says besides its spec.
const (
	// AnnotationTypes lists condition types, sorted, with commas between.
	AnnotationTypes = "kernosis.io/condition-types"
	// AnnotationDraining is when the agent began to end in order, as RFC 3339.
	AnnotationDraining = "kernosis.io/draining"
	// AnnotationVersion is the agent's.
	AnnotationVersion = "kernosis.io/agent-version"

	// AnnotationHolders lists the agents of the node that run Diagnoses and live, by the
	// name that a Diagnosis has as the holder of its checkpoint, each with a stamp of its
	// last renewal: "n1/0123456789abcdef=2026-11-21T12:00:00Z", with commas between.
	AnnotationHolders = "kernosis.io/holders"

	// AnnotationDegraded is what the agent lacks while it works, a line each.
	AnnotationDegraded = "kernosis.io/degraded"

	// LabelComponent with [ComponentAgent] is on each Lease of an agent, so that
	// others of the namespace need not be read.
	LabelComponent = "kernosis.io/component"
	ComponentAgent = "agent"
)

// What the controller writes in place of a silent agent. Reasons are API.
const (
	// Controller is the field manager of the controller's writes and the reporter of its
	// Events. It is an ally in [conditions.Config], whose writes over the agent's are put
	// right without being counted against it.
	Controller = "kernosis-controller"
	// ReasonUnknown: the agent has reported, and does so no more.
	ReasonUnknown = "AgentStatusUnknown"
	// ReasonNeverUpdated: nobody has ever reported the condition.
	ReasonNeverUpdated = "AgentStatusNeverUpdated"
)

const (
	prefix = "kernosis-"
	// maxName is that of an object's name.
	maxName = 253
	// maxTypes bounds what one agent lists; it is that of the conditions.
	maxTypes = 64
	// maxVersion of an agent is far more than "v1.2.3-4-g0123abc-dirty".
	maxVersion = 128
	// maxDegraded bounds the annotation of what is lacking.
	maxDegraded = 2000
)

// Name returns the name of a node's Lease. It is the node's with a prefix, as the
// namespace has other Leases; a name that is too long with it ends in a hash.
func Name(node string) string {
	name := prefix + node
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(node))
	tail := "-" + hex.EncodeToString(sum[:8])
	return strings.TrimRight(name[:maxName-len(tail)], ".-") + tail
}

// NodeOf returns whose agent a Lease belongs to; false: it is none of an agent. The
// holder says it, and the name has to be that node's, so that no Lease speaks for the
// node of another.
func NodeOf(l *coordinationv1.Lease) (string, bool) {
	if l.Spec.HolderIdentity == nil || l.Labels[LabelComponent] != ComponentAgent {
		return "", false
	}
	node := *l.Spec.HolderIdentity
	return node, node != "" && l.Name == Name(node)
}

// TypesOf returns the condition types that a Lease lists, sorted. What can't be an
// agent's, such as kubelet's own, is left out: the list decides what is written.
func TypesOf(l *coordinationv1.Lease) []string {
	types, _ := checkTypes(strings.Split(l.Annotations[AnnotationTypes], ","))
	return types
}

// maxPatience is the longest that anybody waits for an agent because its Lease says so.
const maxPatience = time.Hour + time.Hour/4

// Patience returns how long an agent may be quiet by what its Lease says: for its duration and a
// quarter more, at most for maxPatience. 0: it does not say.
func Patience(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	lasts := time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	return min(max(lasts+lasts/4, 0), maxPatience)
}

// DrainingSince returns when the agent began to end; zero: it did not.
func DrainingSince(l *coordinationv1.Lease) time.Time {
	at, err := time.Parse(time.RFC3339, l.Annotations[AnnotationDraining])
	if err != nil {
		return time.Time{}
	}
	return at
}

// checkTypes returns those that can be an agent's, sorted, each once, at most
// maxTypes; and how many were left out.
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
	if more := len(types) - maxTypes; more > 0 {
		refused += more
		types = types[:maxTypes]
	}
	return types, refused
}
