package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/graph/draw"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/yamldoc"
)

// graphOutputs are the forms of a drawing.
func graphOutputs() []string { return []string{"text", "mermaid", "dot", "svg"} }

func newGraph() *cobra.Command {
	var files []string
	var output string
	cmd := &cobra.Command{
		Use:   "graph -f FILE [OPERATIONSET]",
		Short: "Check and draw the graph of an OperationSet",
		Long: `Check and draw the graph of an OperationSet, without a cluster.

Files are manifests (YAML or JSON) with an OperationSet; where they have several, name
one. Operations in the same files tell what their nodes may change. See docs/diagnose.md
for how a graph is run.

Exit code: 0 drawn, 2 a file or graph that is not valid: each mistake with file and line.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(files) == 0 {
				return errors.New("graph: want a file: -f set.yaml")
			}
			if !slices.Contains(graphOutputs(), output) {
				return fmt.Errorf("output %q: want one of %s", output, strings.Join(graphOutputs(), ", "))
			}
			m, err := manifest.Load(files, cmd.InOrStdin())
			if err != nil {
				return err
			}
			set, err := chooseSet(m, args)
			if err != nil {
				return err
			}
			g, err := buildGraph(m, set)
			if err != nil {
				return err
			}
			return failed(writeGraph(cmd.OutOrStdout(), drawing(m, set, g), output))
		},
	}
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "manifest, or folder of manifests; - is the standard input; may be given more than once")
	cmd.Flags().StringVarP(&output, "output", "o", "text", strings.Join(graphOutputs(), ", "))
	return cmd
}

// chooseSet returns the OperationSet that is named, or the only one.
func chooseSet(m *manifest.Set, args []string) (*v1alpha1.OperationSet, error) {
	var names []string
	for _, s := range m.OperationSets {
		names = append(names, s.Name)
	}
	switch {
	case len(names) == 0:
		return nil, errors.New("graph: the files have no OperationSet")
	case len(args) == 0 && len(names) == 1:
		return m.OperationSets[0], nil
	case len(args) == 0:
		return nil, fmt.Errorf("graph: the files have %d OperationSets, name one: %s", len(names), strings.Join(names, ", "))
	}
	if s := m.OperationSet(args[0]); s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("graph: no OperationSet is named %.80q; there are %s", args[0], strings.Join(names, ", "))
}

// buildGraph returns the set's graph; its error has each mistake with file and line.
func buildGraph(m *manifest.Set, set *v1alpha1.OperationSet) (*graph.Graph, error) {
	g, err := graph.Build(runner.Nodes(&set.Spec))
	if err == nil {
		g, err = g.Require(func(name string) []string {
			if op := m.Operation(name); op != nil {
				return op.Spec.Dependences
			}
			return nil
		})
	}
	var faults graph.Faults
	if !errors.As(err, &faults) {
		return g, err
	}
	var out yamldoc.Errors
	for _, f := range faults {
		field := "spec.adjacencyList"
		if f.Index >= 0 {
			field += fmt.Sprintf("[%d]", f.Index)
			if f.Field != "" {
				field += "." + f.Field
			}
		}
		out = append(out, m.At(set, field, "%s", f.Message))
	}
	slices.SortStableFunc(out, func(a, b *yamldoc.Error) int { return a.Line - b.Line })
	return nil, out
}

func drawing(m *manifest.Set, set *v1alpha1.OperationSet, g *graph.Graph) *draw.Drawing {
	d := &draw.Drawing{Title: set.Name, Graph: g, Notes: make([]draw.Note, g.Len())}
	for id := 1; id < g.Len(); id++ {
		if op := m.Operation(g.Node(id).Operation); op != nil {
			d.Notes[id].Effect = string(op.Spec.DeclaredEffect())
		}
	}
	return d
}

func writeGraph(w io.Writer, d *draw.Drawing, output string) error {
	var err error
	switch output {
	case "mermaid":
		_, err = io.WriteString(w, draw.Mermaid(d))
	case "dot":
		_, err = io.WriteString(w, draw.DOT(d))
	case "svg":
		_, err = w.Write(draw.SVG(d))
	default:
		_, err = io.WriteString(w, draw.Text(d))
	}
	return err
}
