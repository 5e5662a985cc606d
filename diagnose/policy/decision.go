package policy

import (
	"fmt"
	"slices"
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
	Digest    v1alpha1.Digest       // of the plan, see [Plan.Digest]
	Approval  *v1alpha1.Approval    // of the Diagnosis; nil: there is none
	Due       time.Time             // when it was first asked for
	Problem   v1alpha1.ProblemState // empty: nothing reports whether it lasts
	// Seen is until when the problem is known to last; zero: until now.
	Seen time.Time
	// Again means that another Diagnosis has already made a repair for this problem, and this one
	// runs the same OperationSet again. An operation that is not a step of an escalation is then
	// made only once.
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
	d := decideWithoutPolicy(c, w, now)
	if d.Verb != "" {
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

// holdStepless holds back a repair that is not a step of an escalation, in a run that follows
// another one. Such a repair is made once for a problem; after a failed repair it is made only if
// it leads to a step.
func holdStepless(w *Want, leads bool) Decision {
	own, latest := w.lastOf(w.Operation), w.last(func(*Attempt) bool { return true })
	switch {
	case own != nil && own.Failed:
		return withheld(v1alpha1.ReasonAttemptsExhausted,
			"%s did not succeed for this problem, and is not an escalation step", w.Operation)
	case own != nil:
		return withheld(v1alpha1.ReasonMadeBefore,
			"%s was already made for this problem, and is not an escalation step", w.Operation)
	case latest != nil && latest.Failed && !leads:
		return withheld(v1alpha1.ReasonAttemptsExhausted,
			"%s did not succeed for this problem, and %s is not an escalation step", latest.Operation, w.Operation)
	}
	return Decision{}
}

// last returns the last attempt that which selects; nil: there is none.
func (w *Want) last(which func(*Attempt) bool) (last *Attempt) {
	for i := range w.Attempts {
		if a := &w.Attempts[i]; which(a) && (last == nil || !a.Started.Before(last.Started)) {
			last = a
		}
	}
	return last
}

// lastOf returns the last attempt of an operation; nil: there is none.
func (w *Want) lastOf(operation string) *Attempt {
	return w.last(func(a *Attempt) bool { return a.Operation == operation })
}

// decideWithoutPolicy applies the rules that hold regardless of policies. It returns the zero
// Decision if policies decide.
func decideWithoutPolicy(c *Cluster, w *Want, now time.Time) Decision {
	switch {
	case c.Node(w.Node) == nil:
		return withheld(v1alpha1.ReasonNodeNotFound, "there is no node %s", w.Node)
	case w.Problem == v1alpha1.ProblemGone:
		return withheld(v1alpha1.ReasonProblemResolved, "the problem is gone")
	case blind(w, now) && !approved(w) && now.Sub(w.Due) > maxBlindWait:
		return withheld(v1alpha1.ReasonWaitedTooLong,
			"due since %s, and after %s nothing shows whether the problem lasts", stamp(w.Due), maxBlindWait)
	}
	return Decision{}
}

// withheld returns the decision not to make a repair.
func withheld(reason, format string, args ...any) Decision {
	return Decision{Verb: v1alpha1.RemediationWithheld, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// wait returns the decision to decide again when something has changed.
func wait(reason, format string, args ...any) Decision {
	return Decision{Verb: v1alpha1.RemediationWait, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// waitUntil returns the decision to decide again at a time.
func waitUntil(again time.Time, reason, format string, args ...any) Decision {
	d := wait(reason, format, args...)
	d.Again = again
	return d
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
	ranks := []v1alpha1.RemediationVerb{
		"", v1alpha1.RemediationRun, v1alpha1.RemediationWait, v1alpha1.RemediationWouldRun, v1alpha1.RemediationWithheld,
	}
	if slices.Index(ranks, b.Verb) > slices.Index(ranks, a.Verb) {
		return b
	}
	if a.Verb == v1alpha1.RemediationWait && b.Verb == v1alpha1.RemediationWait && !a.Again.IsZero() && (b.Again.IsZero() || b.Again.After(a.Again)) {
		a.Again = b.Again
	}
	return a
}
