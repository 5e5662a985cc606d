package kubetest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/vmtest/await"
)

// definitions is the folder of the product's CustomResourceDefinitions, from the root of
// the checkout.
const definitions = "diagnose/api/crds"

// CRDs makes the product's own kinds known to the server, where they are not yet, and
// waits until they are served.
func (s *Server) CRDs(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), await.Within(time.Minute))
	defer cancel()
	if err := s.crds(ctx); err != nil {
		tb.Fatal(err)
	}
}

func (s *Server) crds(ctx context.Context) error {
	root, err := checkout()
	if err != nil {
		return err
	}
	dir := filepath.Join(root, definitions)
	files, err := fs.Glob(os.DirFS(dir), "*.yaml")
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s has no definitions", dir)
	}
	client, err := dynamic.NewForConfig(s.admin)
	if err != nil {
		return err
	}
	kinds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, crd); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if _, err := kinds.Create(ctx, crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("%s: %w", file, err)
		}
		names = append(names, crd.GetName())
	}
	for _, name := range names {
		if err := established(ctx, kinds, name); err != nil {
			return err
		}
	}
	return nil
}

// established waits until objects of a kind can be written.
func established(ctx context.Context, kinds dynamic.ResourceInterface, name string) error {
	var conditions []any
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		crd, err := kinds.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		conditions, _, _ = unstructured.NestedSlice(crd.Object, "status", "conditions")
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w; conditions %v", name, err, conditions)
	}
	return nil
}
