package v1alpha1_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// A parent is recognized in any version of the API.
func TestParent(t *testing.T) {
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
		if got := d.Parent() != nil; got != want {
			t.Errorf("%s %s: %v", of.APIVersion, of.Kind, got)
		}
	}
}

// The name must not change: another version of Kernosis must find the same child.
func TestChildName(t *testing.T) {
	d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("a", 45) + ".b", UID: "u"}}
	if have, want := d.Child(nil, "\nnode/n", 253).Name, d.Name+"-4e4557d496703c1e"; have != want {
		t.Errorf("%s, want %s", have, want)
	}
	if have, want := d.Child(nil, "/3", 63).Name, strings.Repeat("a", 45)+"-7899c21091ebb273"; have != want {
		t.Errorf("%s, want %s", have, want)
	}
}
