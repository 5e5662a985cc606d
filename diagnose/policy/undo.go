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

// maxBefore bounds a value that is kept to be restored.
const maxBefore = 4096

// Act is something done to a node that can be taken back: a cordon, where it has nothing
// else, or a taint, or the value of a label or annotation. Its JSON is part of the annotation.
// Versions before and after this one read it, too: fields may be added for information, which
// others ignore and keep. What is neither a cordon nor a taint has a kind, so that a version
// that does not know it does not take it for a cordon.
type Act struct {
	Diagnosis types.UID     `json:"diagnosis"`
	Taint     *corev1.Taint `json:"taint,omitempty"` // its time is not kept
	Kind      string        `json:"kind,omitempty"`  // of the Value; empty: there is none
	Value     *Value        `json:"value,omitempty"`

	// written is the act as the annotation has it, and goes back unchanged: a newer version
	// may have put more into it. nil: it is new.
	written json.RawMessage
}

// Kinds of acts that set a value.
const (
	KindLabel      = "label"
	KindAnnotation = "annotation"
)

// Value is that of a label or annotation.
type Value struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	// Before is what the node had before Kernosis set it; nil: nothing. [Do] fills it in.
	Before *string `json:"before,omitempty"`
}

// actsVersion is the form of the annotation: a list of acts. One that this version can't
// read is an object with a version.
const actsVersion = 1

// String names the act for people.
func (a Act) String() string {
	switch {
	case a.Taint != nil:
		return "taint " + a.Taint.ToString()
	case a.Value != nil:
		return a.Kind + " " + a.Value.Key + "=" + a.Value.Value
	default:
		return "cordon"
	}
}

// values returns where the node has values of the act's kind.
func (a Act) values(n *corev1.Node) *map[string]string {
	if a.Kind == KindLabel {
		return &n.Labels
	}
	return &n.Annotations
}

// Cordons reports whether the act is a cordon.
func (a Act) Cordons() bool { return a.Taint == nil && a.Value == nil }

// same reports whether two acts do the same, for whichever diagnoses.
func (a Act) same(b Act) bool {
	switch {
	case a.Taint != nil && b.Taint != nil:
		return a.Taint.MatchTaint(b.Taint) && a.Taint.Value == b.Taint.Value
	case a.Value != nil && b.Value != nil:
		return a.Kind == b.Kind && a.Value.Key == b.Value.Key && a.Value.Value == b.Value.Value
	}
	return a.Cordons() && b.Cordons()
}

// replaces reports whether an act leaves another value where b has left its own.
func (a Act) replaces(b Act) bool {
	return a.Value != nil && b.Value != nil && a.Kind == b.Kind && a.Value.Key == b.Value.Key
}

// InForce reports whether the node is as the act leaves it.
func (a Act) InForce(n *corev1.Node) bool {
	if a.Taint != nil {
		return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return a.same(Act{Taint: &t}) })
	}
	if v := a.Value; v != nil {
		have, ok := (*a.values(n))[v.Key]
		return ok && have == v.Value
	}
	return n.Spec.Unschedulable
}

// check returns why an act is none that Kernosis does. Whoever may write the annotation
// must not have values of others restored by whoever takes acts back.
func (a Act) check() error {
	switch {
	case a.Diagnosis == "":
		return errors.New("an act has no diagnosis")
	case a.Taint != nil && a.Value != nil:
		return errors.New("an act is of two kinds")
	case a.Taint != nil && a.Taint.Key == "":
		return errors.New("a taint has no key")
	case a.Kind == KindLabel && !SettableLabel(a.Value.Key), a.Kind == KindAnnotation && !SettableAnnotation(a.Value.Key):
		return fmt.Errorf("the %s %.80q is none that is set", a.Kind, a.Value.Key)
	default:
		return nil
	}
}

// Do changes the node as the act says, and marks it as ours. It returns whether the node
// has changed. What somebody else has done already is left theirs: no mark, and no change.
// What Kernosis has done already for another diagnosis is then both's. Another value of a
// label or annotation is replaced, and kept to be restored; where it is Kernosis' own, what
// was there before that.
func Do(n *corev1.Node, a Act) (changed bool, err error) {
	if err := a.check(); err != nil {
		return false, fmt.Errorf("node %s: %w", n.Name, err)
	}
	m, err := readMarks(n)
	if err != nil {
		return false, err
	}
	ours := slices.ContainsFunc(m.acts, a.same)
	switch {
	case slices.ContainsFunc(m.acts, func(b Act) bool { return a.same(b) && a.Diagnosis == b.Diagnosis }),
		!ours && a.InForce(n):
		return m.stale, m.write(n)
	case len(m.acts)+len(m.unknown) >= maxActs:
		return false, fmt.Errorf("node %s: annotation %s has %d acts already", n.Name, AnnotationActs, len(m.acts)+len(m.unknown))
	case a.Value != nil:
		if a, err = a.keep(n, m.acts); err != nil {
			return false, err
		}
		m.acts = slices.DeleteFunc(m.acts, func(b Act) bool { return a.replaces(b) && !a.same(b) })
		of := a.values(n)
		if *of == nil {
			*of = make(map[string]string)
		}
		(*of)[a.Value.Key] = a.Value.Value
	case !ours && a.Taint == nil:
		n.Spec.Unschedulable = true
	case !ours:
		if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return a.Taint.MatchTaint(&t) }) {
			return false, fmt.Errorf("node %s: taint %s:%s has another value already", n.Name, a.Taint.Key, a.Taint.Effect)
		}
		n.Spec.Taints = append(n.Spec.Taints, *a.Taint)
	}
	done := Act{Diagnosis: a.Diagnosis, Kind: a.Kind, Value: a.Value}
	if a.Taint != nil {
		done.Taint = &corev1.Taint{Key: a.Taint.Key, Value: a.Taint.Value, Effect: a.Taint.Effect}
	}
	m.acts = append(m.acts, done)
	return true, m.write(n)
}

// keep fills in what is to be restored once the act of a value is taken back.
func (a Act) keep(n *corev1.Node, acts []Act) (Act, error) {
	v := Value{Key: a.Value.Key, Value: a.Value.Value}
	if i := slices.IndexFunc(acts, a.replaces); i >= 0 {
		v.Before = acts[i].Value.Before
	} else if have, ok := (*a.values(n))[v.Key]; ok {
		if len(have) > maxBefore {
			return a, fmt.Errorf("node %s: %s has a value of %d bytes already, too long to be restored", n.Name, v.Key, len(have))
		}
		v.Before = &have
	}
	a.Value = &v
	return a, nil
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
		value := a.Value
		switch {
		case a.Taint != nil:
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return a.same(Act{Taint: &t}) })
		case value == nil:
			n.Spec.Unschedulable = false
		case value.Before != nil:
			(*a.values(n))[value.Key] = *value.Before
		default:
			delete(*a.values(n), value.Key)
		}
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
		a := Act{written: raw}
		if err := json.Unmarshal(raw, &a); err != nil {
			return wrong(err)
		}
		switch {
		case a.Kind == "":
			a.Value = nil // only what has a kind sets one
		case a.Kind != KindLabel && a.Kind != KindAnnotation || a.Value == nil:
			m.unknown = append(m.unknown, raw)
			continue
		}
		if err := a.check(); err != nil {
			return wrong(err)
		}
		if a.InForce(n) {
			m.acts = append(m.acts, a)
		} else {
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
			if raw, err = json.Marshal(a); err != nil {
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
