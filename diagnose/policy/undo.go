package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

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
	Diagnosis types.UID
	Taint     *corev1.Taint // nil: a cordon. Its time is not kept.

	// written is the act as the annotation has it, and goes back unchanged: a newer version
	// may have put more into it. nil: it is new.
	written json.RawMessage
}

// act is the JSON form of an [Act]. Versions before and after this one read it, too: fields
// may be added for information, which others ignore and keep. What is neither a cordon nor a
// taint has a kind, so that a version that does not know it does not take it for a cordon.
type act struct {
	Diagnosis types.UID     `json:"diagnosis"`
	Taint     *corev1.Taint `json:"taint,omitempty"`
	Kind      string        `json:"kind,omitempty"`
}

// actsVersion is the form of the annotation: a list of acts. One that this version can't
// read is an object with a version.
const actsVersion = 1

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
	m, err := readMarks(n)
	if err != nil {
		return false, err
	}
	ours := slices.ContainsFunc(m.acts, a.same)
	switch {
	case slices.ContainsFunc(m.acts, func(b Act) bool { return a.same(b) && a.Diagnosis == b.Diagnosis }),
		!ours && a.inForce(n):
		return m.stale, m.write(n)
	case len(m.acts)+len(m.unknown) >= maxActs:
		return false, fmt.Errorf("node %s: annotation %s has %d acts already", n.Name, AnnotationActs, len(m.acts)+len(m.unknown))
	case !ours && a.Taint == nil:
		n.Spec.Unschedulable = true
	case !ours:
		if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return a.Taint.MatchTaint(&t) }) {
			return false, fmt.Errorf("node %s: taint %s:%s has another value already", n.Name, a.Taint.Key, a.Taint.Effect)
		}
		n.Spec.Taints = append(n.Spec.Taints, *a.Taint)
	}
	done := Act{Diagnosis: a.Diagnosis}
	if a.Taint != nil {
		done.Taint = &corev1.Taint{Key: a.Taint.Key, Value: a.Taint.Value, Effect: a.Taint.Effect}
	}
	m.acts = append(m.acts, done)
	return true, m.write(n)
}

// Undo takes back what a diagnosis has done to a node, and is still so, and no other
// diagnosis has done too. It returns what it has taken back, and whether the node has
// changed: marks go also where there is nothing to take back any more.
func Undo(n *corev1.Node, diagnosis types.UID) (undone []Act, changed bool, err error) {
	return UndoEach(n, func(a Act) bool { return a.Diagnosis == diagnosis })
}

// UndoEach does as Undo with those acts that which names, of whichever diagnoses.
func UndoEach(n *corev1.Node, which func(Act) bool) (undone []Act, changed bool, err error) {
	m, err := readMarks(n)
	if err != nil {
		return nil, false, err
	}
	var rest []Act
	for _, a := range m.acts {
		if !which(a) {
			rest = append(rest, a)
		}
	}
	for _, a := range m.acts {
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
	changed = m.stale || len(rest) < len(m.acts)
	m.acts = rest
	return undone, changed, m.write(n)
}

// Acts returns what Kernosis has done to a node and is still so. The mark of an act that
// somebody has taken back must not stay: were it done again by another, it would be taken
// for ours. stale says that there are such marks; [Undo] of no diagnosis removes them, and
// is to be called on each change of a node that has any. Acts of a kind that this version
// does not know are not returned, and stay whatever is done and undone.
func Acts(n *corev1.Node) (acts []Act, stale bool, err error) {
	m, err := readMarks(n)
	if err != nil {
		return nil, false, err
	}
	return m.acts, m.stale, nil
}

// marks is what the annotation has.
type marks struct {
	acts    []Act             // that are still so
	unknown []json.RawMessage // of kinds that this version does not know
	stale   bool              // there were others
}

func readMarks(n *corev1.Node) (*marks, error) {
	m := &marks{}
	text, ok := n.Annotations[AnnotationActs]
	if !ok {
		return m, nil
	}
	wrong := func(err error) (*marks, error) {
		return nil, fmt.Errorf("node %s: annotation %s: %w", n.Name, AnnotationActs, err)
	}
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		var other struct {
			Version int `json:"version"`
		}
		if json.Unmarshal([]byte(text), &other) == nil && other.Version > actsVersion {
			err = fmt.Errorf("it is of a newer version of Kernosis: its form is %d, known is %d", other.Version, actsVersion)
		}
		return wrong(err)
	}
	for _, raw := range list {
		var a act
		if err := json.Unmarshal(raw, &a); err != nil {
			return wrong(err)
		}
		switch done := (Act{Diagnosis: a.Diagnosis, Taint: a.Taint, written: raw}); {
		case a.Kind != "":
			m.unknown = append(m.unknown, raw)
		case a.Diagnosis == "" || a.Taint != nil && a.Taint.Key == "":
			return wrong(errors.New("an act has no diagnosis, or a taint no key"))
		case done.inForce(n):
			m.acts = append(m.acts, done)
		default:
			m.stale = true
		}
	}
	return m, nil
}

// write writes the annotation.
func (m *marks) write(n *corev1.Node) error {
	list := slices.Clone(m.unknown)
	for _, a := range m.acts {
		raw := a.written
		if raw == nil {
			var err error
			if raw, err = json.Marshal(act{Diagnosis: a.Diagnosis, Taint: a.Taint}); err != nil {
				return err
			}
		}
		list = append(list, raw)
	}
	if len(list) == 0 {
		delete(n.Annotations, AnnotationActs)
		return nil
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	if n.Annotations == nil {
		n.Annotations = make(map[string]string)
	}
	n.Annotations[AnnotationActs] = string(text)
	return nil
}
