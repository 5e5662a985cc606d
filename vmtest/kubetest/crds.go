package kubetest

import (
	"fmt"
	"io/fs"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/diagnose/api/crds"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// CRDs creates the product's CRDs unless they exist, and waits until they are served.
func (s *Server) CRDs(tb testing.TB) {
	tb.Helper()
	client, err := dynamic.NewForConfig(s.admin)
	if err != nil {
		tb.Fatal(err)
	}
	files, err := fs.Glob(crds.Files, "*.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	kinds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	var names []string
	for _, file := range files {
		text, err := crds.Files.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, crd); err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
		if _, err := kinds.Create(tb.Context(), crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			tb.Fatalf("%s: %v", file, err)
		}
		names = append(names, crd.GetName())
	}
	for _, name := range names {
		testenv.UntilShown(tb, name+" is established", time.Minute, func() (bool, string) {
			crd, err := kinds.Get(tb.Context(), name, metav1.GetOptions{})
			if err != nil {
				tb.Fatal(err)
			}
			conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
			return slices.ContainsFunc(conditions, func(condition any) bool {
				c, ok := condition.(map[string]any)
				return ok && c["type"] == "Established" && c["status"] == "True"
			}), fmt.Sprint(conditions)
		})
	}
}
