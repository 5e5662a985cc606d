package v1alpha1_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"golang.org/x/tools/txtar"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/manifest"
)

// The server accepts the examples in the docs and the output of kernosis convert.
func TestTheServerTakesTheExamples(t *testing.T) {
	c, _ := newClient(t)
	reader, err := manifest.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range examples(t) {
		set, err := reader.Parse(f)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, obj := range set.Objects() {
			t.Run(f.Name+"/"+obj.GetName(), func(t *testing.T) {
				if ns := obj.GetNamespace(); ns != "" {
					_, err := cluster.Server(t).Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
					if err != nil && !apierrors.IsAlreadyExists(err) {
						t.Fatal(err)
					}
				}
				if err := c.Create(t.Context(), obj, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// examples returns the manifests in the docs, and the expected outputs in the tests of package
// convert.
func examples(t *testing.T) []document.File {
	t.Helper()
	var files []document.File
	block := regexp.MustCompile("(?s)```yaml\n(apiVersion: kernosis.io/.*?)```")
	for _, name := range []string{"../../../docs/api.md", "../../../docs/convert.md", "../../../docs/triggers.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range block.FindAllSubmatch(text, -1) {
			files = append(files, document.File{Name: filepath.Base(name), Data: m[1]})
		}
	}
	if len(files) < 5 {
		t.Errorf("%d examples in the docs", len(files))
	}
	archives, err := filepath.Glob("../../convert/testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatal(archives, err)
	}
	for _, path := range archives {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			if f.Name == "out.yaml" {
				files = append(files, document.File{Name: filepath.Base(path), Data: f.Data})
			}
		}
	}
	return files
}
