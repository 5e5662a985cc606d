package policy

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Decision is the decision on a repair, with its reason.
type Decision struct {
	Verb   v1alpha1.RemediationVerb
	Reason string // of the condition RemediationAllowed
	// Message has the facts. It must not change while they don't: no ages, no countdowns.
	Message string
	// Again is, for a Wait, when to decide again; zero: when the cluster, the policy or an approval
	// has changed.
	Again time.Time
	// Policy names the policy that made the decision; empty: it does not depend on policies.
	Policy string
}

// maxBlindWait is how long a repair may wait if nothing reports whether its problem lasts: after
// that the diagnosis' findings are too old to justify changing a node.
const maxBlindWait = time.Hour

// Want is a repair that a diagnosis wants to make.
type Want struct {
	Diagnosis types.UID
	Node      string
	Operation string
	// Effect is the effect of the operation; any but Collect and Check counts as Remediate.
	Effect   v1alpha1.Effect
	Digest   v1alpha1.Digest       // of the plan, see [Plan.Digest]
	Approval *v1alpha1.Approval    // of the Diagnosis; nil: there is none
	Due      time.Time             // when it was first asked for
	Problem  v1alpha1.ProblemState // empty: nothing reports whether it lasts
	// Seen is until when the problem is known to last; zero: until now.
	Seen time.Time
	// Again means that another Diagnosis has repaired for this problem before, and this one runs
	// the same OperationSet again. An operation that is no step of an escalation is then made only
	// once.
	Again bool
	// Later are the operations that come after this one in the OperationSet.
	Later []string
	// Attempts are the repairs that were made on this node in the same episode of this problem,
	// including those of other diagnoses.
	Attempts []Attempt
}

// Decide decides on a repair. Each policy that selects the node must allow it. The strictest
// decision wins: Withheld before WouldRun before Wait, and among equals the first policy by name.
// policies must be sorted by name.
//
// A Run is not yet permission: [Budget.Acquire] grants it.
func Decide(policies []*Policy, c *Cluster, w *Want, now time.Time) Decision {
	d, done := decideWithoutPolicy(c, w, now)
	if done {
		return d
	}
	node := c.Node(w.Node)
	step, leads := false, false // the operation is a step of an escalation, leads to one
	for _, p := range policies {
		if p.Selects(node) {
			d = stricter(d, p.decide(c, node, w, now))
			step, leads = step || p.step(w.Operation) >= 0, leads || p.leads(w, now)
		}
	}
	if d.Verb == "" {
		return noPolicy(w)
	}
	if w.Again && !step {
		if held := holdStepless(w, leads); held.Verb != "" {
			return held
		}
	}
	return d
}

// holdStepless holds back a repair that is no step of an escalation in a run that follows another
// one: it is made once for a problem, and after a repair that failed only if it leads to a step.
func holdStepless(w *Want, leads bool) Decision {
	own, latest := w.last(w.Operation), w.last("")
	d := Decision{Verb: v1alpha1.RemediationWithheld, Reason: v1alpha1.ReasonAttemptsExhausted}
	switch {
	case own != nil && own.Failed:
		d.Message = fmt.Sprintf("%s did not succeed for this problem, and is not an escalation step", w.Operation)
	case own != nil:
		d.Reason = v1alpha1.ReasonMadeBefore
		d.Message = fmt.Sprintf("%s was already made for this problem, and is not an escalation step", w.Operation)
	case latest != nil && latest.Failed && !leads:
		d.Message = fmt.Sprintf("%s did not succeed for this problem, and %s is not an escalation step", latest.Operation, w.Operation)
	default:
		return Decision{}
	}
	return d
}

// last returns the last attempt of an operation, or of any if it is empty; nil: there is none.
func (w *Want) last(operation string) (last *Attempt) {
	for i := range w.Attempts {
		if a := &w.Attempts[i]; (operation == "" || a.Operation == operation) && (last == nil || !a.Started.Before(last.Started)) {
			last = a
		}
	}
	return last
}

// decideWithoutPolicy applies the rules that hold regardless of policies.
func decideWithoutPolicy(c *Cluster, w *Want, now time.Time) (d Decision, done bool) {
	switch {
	case w.Effect == v1alpha1.EffectCollect || w.Effect == v1alpha1.EffectCheck:
		return Decision{Verb: v1alpha1.RemediationRun, Reason: v1alpha1.ReasonAllowed, Message: w.Operation + " changes nothing"}, true
	case c.Node(w.Node) == nil:
		return Decision{Verb: v1alpha1.RemediationWithheld, Reason: v1alpha1.ReasonNodeNotFound, Message: fmt.Sprintf("there is no node %s", w.Node)}, true
	case w.Problem == v1alpha1.ProblemGone:
		return Decision{Verb: v1alpha1.RemediationWithheld, Reason: v1alpha1.ReasonProblemResolved, Message: "the problem is gone"}, true
	case blind(w, now) && !approved(w) && now.Sub(w.Due) > maxBlindWait:
		return Decision{
			Verb: v1alpha1.RemediationWithheld, Reason: v1alpha1.ReasonWaitedTooLong,
			Message: fmt.Sprintf("due since %s, and after %s nothing shows whether the problem lasts", stamp(w.Due), maxBlindWait),
		}, true
	default:
		return Decision{}, false
	}
}

// blind reports whether nothing shows that the problem still lasts.
func blind(w *Want, now time.Time) bool {
	return w.Problem == "" || w.Problem == v1alpha1.ProblemLasts && !w.Seen.IsZero() && now.Sub(w.Seen) > maxBlindWait
}

func noPolicy(w *Want) Decision {
	return Decision{Verb: v1alpha1.RemediationWouldRun, Reason: v1alpha1.ReasonNoPolicy, Message: fmt.Sprintf("no RemediationPolicy selects node %s: Observe", w.Node)}
}

// approved reports whether exactly the wanted plan is approved.
func approved(w *Want) bool {
	return w.Approval != nil && w.Digest != "" && w.Approval.PlanDigest == w.Digest
}

// stricter returns the decision that allows less, or a if both allow the same. For two Waits, Again
// is the later time.
func stricter(a, b Decision) Decision {
	rank := func(v v1alpha1.RemediationVerb) int {
		switch v {
		case v1alpha1.RemediationRun:
			return 1
		case v1alpha1.RemediationWait:
			return 2
		case v1alpha1.RemediationWouldRun:
			return 3
		case v1alpha1.RemediationWithheld:
			return 4
		default:
			return 0
		}
	}
	if rank(b.Verb) > rank(a.Verb) {
		return b
	}
	if a.Verb == v1alpha1.RemediationWait && b.Verb == v1alpha1.RemediationWait && !a.Again.IsZero() && (b.Again.IsZero() || b.Again.After(a.Again)) {
		a.Again = b.Again
	}
	return a
}
