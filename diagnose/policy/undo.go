package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// AnnotationActs is the annotation of a node with what Kernosis has done to it, and for
// which Diagnosis. It is written together with the act.
const AnnotationActs = v1alpha1.Group + "/acts"

// maxActs bounds the annotation.
const maxActs = 32

// Act is something done to a node that can be taken back: a cordon, or a taint.
type Act struct {
	Diagnosis types.UID     `json:"diagnosis"`
	Taint     *corev1.Taint `json:"taint,omitempty"` // nil: a cordon. Its time is not kept.
}

// String names the act for people.
func (a Act) String() string {
	if a.Taint == nil {
		return "cordon"
	}
	return "taint " + a.Taint.ToString()
}

// same reports whether two acts do the same, for whichever diagnoses.
func (a Act) same(b Act) bool {
	if a.Taint == nil || b.Taint == nil {
		return a.Taint == b.Taint
	}
	return a.Taint.MatchTaint(b.Taint) && a.Taint.Value == b.Taint.Value
}

// inForce reports whether the node is as the act leaves it.
func (a Act) inForce(n *corev1.Node) bool {
	if a.Taint == nil {
		return n.Spec.Unschedulable
	}
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return a.same(Act{Taint: &t}) })
}

// Do changes the node as the act says, and marks it as ours. It returns whether the node
// has changed. What somebody else has done already is left theirs: no mark, and no change.
// What Kernosis has done already for another diagnosis is then both's.
func Do(n *corev1.Node, a Act) (changed bool, err error) {
	acts, tidied, err := Acts(n)
	if err != nil {
		return false, err
	}
	ours := slices.ContainsFunc(acts, a.same)
	switch {
	case slices.ContainsFunc(acts, func(b Act) bool { return a.same(b) && a.Diagnosis == b.Diagnosis }),
		!ours && a.inForce(n):
		return tidied, mark(n, acts)
	case len(acts) >= maxActs:
		return false, fmt.Errorf("node %s: annotation %s has %d acts already", n.Name, AnnotationActs, len(acts))
	case !ours && a.Taint == nil:
		n.Spec.Unschedulable = true
	case !ours:
		if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return a.Taint.MatchTaint(&t) }) {
			return false, fmt.Errorf("node %s: taint %s:%s has another value already", n.Name, a.Taint.Key, a.Taint.Effect)
		}
		n.Spec.Taints = append(n.Spec.Taints, *a.Taint)
	}
	if a.Taint != nil {
		a.Taint = &corev1.Taint{Key: a.Taint.Key, Value: a.Taint.Value, Effect: a.Taint.Effect}
	}
	return true, mark(n, append(acts, a))
}

// Undo takes back what a diagnosis has done to a node, and is still so, and no other
// diagnosis has done too. It returns what it has taken back, and whether the node has
// changed: marks go also where there is nothing to take back any more.
func Undo(n *corev1.Node, diagnosis types.UID) (undone []Act, changed bool, err error) {
	return UndoEach(n, func(a Act) bool { return a.Diagnosis == diagnosis })
}

// UndoEach does as Undo with those acts that which names, of whichever diagnoses.
func UndoEach(n *corev1.Node, which func(Act) bool) (undone []Act, changed bool, err error) {
	acts, changed, err := Acts(n)
	if err != nil {
		return nil, false, err
	}
	var rest []Act
	for _, a := range acts {
		if !which(a) {
			rest = append(rest, a)
		}
	}
	for _, a := range acts {
		if !which(a) || slices.ContainsFunc(rest, a.same) || slices.ContainsFunc(undone, a.same) {
			continue
		}
		undone = append(undone, a)
		if a.Taint == nil {
			n.Spec.Unschedulable = false
			continue
		}
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return a.same(Act{Taint: &t}) })
	}
	return undone, changed || len(rest) < len(acts), mark(n, rest)
}

// Acts returns what Kernosis has done to a node and is still so. The mark of an act that
// somebody has taken back must not stay: were it done again by another, it would be taken
// for ours. stale says that there are such marks; [Undo] of no diagnosis removes them, and
// is to be called on each change of a node that has any.
func Acts(n *corev1.Node) (acts []Act, stale bool, err error) {
	text, ok := n.Annotations[AnnotationActs]
	if !ok {
		return nil, false, nil
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&acts); err != nil {
		return nil, false, fmt.Errorf("node %s: annotation %s: %w", n.Name, AnnotationActs, err)
	}
	if slices.ContainsFunc(acts, func(a Act) bool { return a.Diagnosis == "" || a.Taint != nil && a.Taint.Key == "" }) {
		return nil, false, fmt.Errorf("node %s: annotation %s: %w", n.Name, AnnotationActs, errors.New("an act has no diagnosis, or a taint no key"))
	}
	before := len(acts)
	acts = slices.DeleteFunc(acts, func(a Act) bool { return !a.inForce(n) })
	return acts, len(acts) < before, nil
}

// mark writes the annotation.
func mark(n *corev1.Node, acts []Act) error {
	if len(acts) == 0 {
		delete(n.Annotations, AnnotationActs)
		return nil
	}
	text, err := json.Marshal(acts)
	if err != nil {
		return err
	}
	if n.Annotations == nil {
		n.Annotations = make(map[string]string)
	}
	n.Annotations[AnnotationActs] = string(text)
	return nil
}
