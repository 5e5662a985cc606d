package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// A parent is one in whichever version of the API the reference was written.
func TestParentOf(t *testing.T) {
	controls := true
	for of, want := range map[metav1.OwnerReference]bool{
		{APIVersion: "kernosis.io/v1alpha1", Kind: "Diagnosis"}:    true,
		{APIVersion: "kernosis.io/v1beta1", Kind: "Diagnosis"}:     true,
		{APIVersion: "kernosis.io/v1alpha1", Kind: "OperationSet"}: false,
		{APIVersion: "other.io/v1alpha1", Kind: "Diagnosis"}:       false,
		{APIVersion: "a/b/c", Kind: "Diagnosis"}:                   false,
	} {
		of.Controller = &controls
		d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{of}}}
		if got := parentOf(d) != nil; got != want {
			t.Errorf("%s %s: %v", of.APIVersion, of.Kind, got)
		}
	}
}
