package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Completed reports whether the Diagnosis has ended.
func (s *DiagnosisStatus) Completed() bool {
	return meta.IsStatusConditionTrue(s.Conditions, ConditionComplete)
}

// CompletedAt returns when the Diagnosis ended, if it has.
func (s *DiagnosisStatus) CompletedAt() (at time.Time, ok bool) {
	c := meta.FindStatusCondition(s.Conditions, ConditionComplete)
	if c == nil || c.Status != metav1.ConditionTrue {
		return time.Time{}, false
	}
	if s.CompletionTime != nil {
		return s.CompletionTime.Time, true
	}
	return c.LastTransitionTime.Time, true
}
