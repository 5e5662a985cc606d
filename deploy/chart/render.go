package chart

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Namespace is the namespace to render for, unless a Renderer specifies another.
const Namespace = "kernosis"

// Renderer runs Helm on the chart. It may be copied and used concurrently.
type Renderer struct {
	Helm      string // path of the program
	Chart     string // folder of the chart
	Namespace string // empty: [Namespace]
	// Hooks includes the hooks that Helm runs before an upgrade and a removal.
	Hooks bool
}

// Document is one rendered object.
type Document struct {
	Source string // file name of the template: "agent-rbac.yaml"
	Text   string // YAML, with the template's comments
}

// Object parses the document.
func (d Document) Object() (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(d.Text), &o.Object); err != nil {
		return nil, fmt.Errorf("%s: %w", d.Source, err)
	}
	return o, nil
}

// Render renders the chart with values. Documents are in Helm's order, CRDs first. An error
// contains Helm's output.
func (r Renderer) Render(ctx context.Context, values map[string]any) ([]Document, error) {
	text, err := yaml.Marshal(values)
	if err != nil {
		return nil, err
	}
	namespace := r.Namespace
	if namespace == "" {
		namespace = Namespace
	}
	args := []string{"template", "kernosis", r.Chart, "--namespace", namespace, "--include-crds", "--values", "-"}
	if !r.Hooks {
		args = append(args, "--no-hooks")
	}
	cmd := exec.CommandContext(ctx, r.Helm, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("helm template: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return split(stdout.String()), nil
}

// split splits Helm's output. A separator is followed by the name of the template, which may be
// missing for further objects of the same template.
func split(text string) (all []Document) {
	source := ""
	for part := range strings.SplitSeq("\n"+text, "\n---\n") {
		part = strings.TrimLeft(part, "\n")
		if name, rest, ok := strings.Cut(part, "\n"); strings.HasPrefix(name, "# Source: ") {
			source = path.Base(strings.TrimPrefix(name, "# Source: "))
			part = rest
			if !ok {
				continue
			}
		}
		if !hasObject(part) {
			continue
		}
		all = append(all, Document{Source: source, Text: strings.TrimRight(part, "\n") + "\n"})
	}
	return all
}

// hasObject reports whether the text is more than comments.
func hasObject(text string) bool {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return true
		}
	}
	return false
}
