package v1alpha1

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// LabelSelector selects objects by label, as in Kubernetes, but with size limits. An empty
// one selects all.
type LabelSelector struct {
	// matchLabels are required labels and their values.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// matchExpressions must all match.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	MatchExpressions []LabelRequirement `json:"matchExpressions,omitempty"`
}

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength=63
type LabelValue = string

// LabelRequirement is one requirement of a [LabelSelector].
//
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",fieldPath=".values",message="In and NotIn require values, Exists and DoesNotExist forbid them"
type LabelRequirement struct {
	// key is the label key.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// operator relates the label to values.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`

	// values are required for In and NotIn.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	Values []string `json:"values,omitempty"`
}

// Selector returns l as a selector of objects. A nil l selects nothing.
func (l *LabelSelector) Selector() (labels.Selector, error) {
	if l == nil {
		return labels.Nothing(), nil
	}
	s := &metav1.LabelSelector{MatchLabels: l.MatchLabels}
	for _, e := range l.MatchExpressions {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement(e))
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, fmt.Errorf("label selector: %w", err)
	}
	return selector, nil
}
