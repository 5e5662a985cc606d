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

// AnnotationActs is the node annotation that lists what Kernosis has done to the node, and for
// which Diagnosis. It is written together with each act.
const AnnotationActs = v1alpha1.Group + "/acts"

// maxActs bounds the number of acts in the annotation.
const maxActs = 32

// maxBefore bounds the size in bytes of a previous value that is kept for restoring.
const maxBefore = 4096

// Act is a reversible change of a node: a taint, the value of a label or annotation, or, with
// neither set, a cordon. Its JSON is part of the annotation, which older and newer versions read
// too: fields may be added for information, which others ignore and keep. Other acts than cordons
// and taints need a kind, so that a version that does not know the act does not mistake it for a
// cordon.
type Act struct {
	Diagnosis types.UID     `json:"diagnosis"`
	Taint     *corev1.Taint `json:"taint,omitempty"` // its time is not kept
	Kind      string        `json:"kind,omitempty"`  // of the Value; empty: there is none
	Value     *Value        `json:"value,omitempty"`

	// written is the act's original JSON from the annotation, which is written back unchanged,
	// because a newer version may have added fields. nil: the act is new.
	written json.RawMessage
}

// Kinds of acts that set a value.
const (
	KindLabel      = "label"
	KindAnnotation = "annotation"
)

// Value is the value of a label or annotation.
type Value struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	// Before is the node's value before Kernosis set it; nil: it had none. [Do] fills it in.
	Before *string `json:"before,omitempty"`
}

// actsVersion is the version of the annotation's format: a list of acts. Later formats are objects
// with a version field.
const actsVersion = 1

// String returns a human-readable name of the act.
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

// values returns the node's labels or annotations, by the act's kind.
func (a Act) values(n *corev1.Node) *map[string]string {
	if a.Kind == KindLabel {
		return &n.Labels
	}
	return &n.Annotations
}

// Cordons reports whether the act is a cordon.
func (a Act) Cordons() bool { return a.Taint == nil && a.Value == nil }

// same reports whether two acts make the same change, regardless of their diagnoses.
func (a Act) same(b Act) bool {
	switch {
	case a.Taint != nil && b.Taint != nil:
		return a.Taint.MatchTaint(b.Taint) && a.Taint.Value == b.Taint.Value
	case a.Value != nil && b.Value != nil:
		return a.Kind == b.Kind && a.Value.Key == b.Value.Key && a.Value.Value == b.Value.Value
	}
	return a.Cordons() && b.Cordons()
}

// replaces reports whether an act sets the same key as b.
func (a Act) replaces(b Act) bool {
	return a.Value != nil && b.Value != nil && a.Kind == b.Kind && a.Value.Key == b.Value.Key
}

// InForce reports whether the node is in the state that the act leaves.
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

// check returns an error if Kernosis would never do such an act. Without this check, anybody who may
// write the annotation could make Kernosis restore arbitrary values.
func (a Act) check() error {
	switch {
	case a.Diagnosis == "":
		return errors.New("an act has no diagnosis")
	case a.Taint != nil && a.Value != nil:
		return errors.New("an act has both a taint and a value")
	case a.Taint != nil && a.Taint.Key == "":
		return errors.New("a taint has no key")
	case a.Kind == KindLabel && !SettableLabel(a.Value.Key), a.Kind == KindAnnotation && !SettableAnnotation(a.Value.Key):
		return fmt.Errorf("the %s %.80q is never set by Kernosis", a.Kind, a.Value.Key)
	default:
		return nil
	}
}

// Do applies the act to the node and marks it as ours. It returns whether the node has changed. If
// somebody else has already made the same change, it remains theirs: Do marks and changes nothing.
// If Kernosis has made the change for another diagnosis, both own it; if the annotation is full, the
// new owner replaces the oldest. Do replaces a different value of a label or annotation, and keeps
// it for restoring; if that value is Kernosis' own, it keeps the value before it instead.
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
	case a.Value != nil:
		if a, err = a.keep(n, m.acts); err != nil {
			return false, err
		}
		m.acts = slices.DeleteFunc(m.acts, func(b Act) bool { return a.replaces(b) && !a.same(b) })
	}
	switch full := len(m.acts)+len(m.unknown) >= maxActs; {
	case full && !ours:
		return false, fmt.Errorf("node %s: annotation %s already has %d acts", n.Name, AnnotationActs, len(m.acts)+len(m.unknown))
	case full:
		oldest := slices.IndexFunc(m.acts, a.same)
		m.acts = slices.Delete(m.acts, oldest, oldest+1)
	}
	switch {
	case a.Value != nil:
		of := a.values(n)
		if *of == nil {
			*of = make(map[string]string)
		}
		(*of)[a.Value.Key] = a.Value.Value
	case !ours && a.Taint == nil:
		n.Spec.Unschedulable = true
	case !ours:
		if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return a.Taint.MatchTaint(&t) }) {
			return false, fmt.Errorf("node %s: taint %s:%s already has another value", n.Name, a.Taint.Key, a.Taint.Effect)
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

// keep fills in the value to restore when the act is undone.
func (a Act) keep(n *corev1.Node, acts []Act) (Act, error) {
	v := Value{Key: a.Value.Key, Value: a.Value.Value}
	if i := slices.IndexFunc(acts, a.replaces); i >= 0 {
		v.Before = acts[i].Value.Before
	} else if have, ok := (*a.values(n))[v.Key]; ok {
		if len(have) > maxBefore {
			return a, fmt.Errorf("node %s: %s already has a value of %d bytes, too long to be restored", n.Name, v.Key, len(have))
		}
		v.Before = &have
	}
	a.Value = &v
	return a, nil
}

// Undo reverts the acts that which selects, except those that another act repeats, if they are still
// in force. It returns what it has reverted, and whether the node has changed, which includes the
// removal of stale marks.
func Undo(n *corev1.Node, which func(Act) bool) (undone []Act, changed bool, err error) {
	m, err := readMarks(n)
	if err != nil {
		return nil, false, err
	}
	rest := slices.DeleteFunc(slices.Clone(m.acts), which)
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

// Acts returns the acts of Kernosis that are still in force on a node. The mark of an act that
// somebody has reverted must not stay: if another made the same change again, it would be mistaken
// for ours. stale says that there are such marks; [Undo] of no act removes them, and must be
// called on each change of a node that has any. Acts of a kind that this version does not know are
// not returned, and are always preserved.
func Acts(n *corev1.Node) (acts []Act, stale bool, err error) {
	m, err := readMarks(n)
	if err != nil {
		return nil, false, err
	}
	return m.acts, m.stale, nil
}

// SetKeys returns the keys of the labels and annotations that acts in force have set. A copy of the
// node without their values would make the acts look reverted.
func SetKeys(n *corev1.Node) (keys []string) {
	acts, _, err := Acts(n)
	if err != nil {
		return nil // the reader of the copy gets the same error
	}
	for _, a := range acts {
		if a.Value != nil {
			keys = append(keys, a.Value.Key)
		}
	}
	return keys
}

// marks is the parsed annotation.
type marks struct {
	acts    []Act             // that are still in force
	unknown []json.RawMessage // of kinds that this version does not know
	stale   bool              // some are no longer in force
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
			err = fmt.Errorf("it is from a newer version of Kernosis: format %d, known up to %d", other.Version, actsVersion)
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
			a.Value = nil // only an act with a kind sets a value
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
