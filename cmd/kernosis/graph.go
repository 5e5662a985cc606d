package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph/draw"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/resolve"
)

// graphOutputs returns the output formats of a drawing other than text.
func graphOutputs() []string { return []string{"mermaid", "dot", "svg"} }

func newGraph() *cobra.Command {
	var source setSource
	var format *output.Format
	cmd := &cobra.Command{
		Use:   "graph -f FILE [OPERATIONSET] | --shipped NAME",
		Short: "Check and draw the graph of an OperationSet",
		Long: `Check and draw the graph of an OperationSet, without a cluster.

Input files are manifests (YAML or JSON) with an OperationSet; if they have several, name
one. Operations in the same files and built-in operations define what each node may
change. Unknown operations are listed beside the drawing; "kernosis lint" checks the
files further. See docs/diagnose.md for how a graph runs.

Exit code: 0 drawn; 2 a file or graph is not valid: each mistake with file and line.`,
		Example: `  kernosis graph --shipped oom-kill
  kernosis graph -f set.yaml -o svg >set.svg`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, set, err := source.load(cmd, args)
			if err != nil {
				return err
			}
			c := resolve.Of(m.Operations, catalog.All(operation.Host{}))
			g, err := resolve.Graph(c, set)
			if err != nil {
				return resolve.In(m, err)
			}
			// A set that can't run here is still drawn: its Operations may be in the cluster.
			if _, err := resolve.Set(c, set); err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s\nthe graph is drawn, but can't run like this\n", resolve.In(m, err))
			}
			effect := func(id int) v1alpha1.Effect { return c.Effect(g.Node(id).Operation) }
			return output.Failed(writeGraph(cmd.OutOrStdout(), draw.Of(set.Name, g, effect, &v1alpha1.DiagnosisStatus{}), format))
		},
	}
	source.flags(cmd)
	format = output.AddNames(cmd, append([]string{output.Text}, graphOutputs()...)...)
	return cmd
}

func writeGraph(w io.Writer, d *draw.Drawing, format *output.Format) error {
	var text string
	switch format.String() {
	case "mermaid":
		text = draw.Mermaid(d)
	case "dot":
		text = draw.DOT(d)
	case "svg":
		text = string(draw.SVG(d))
	default:
		text = draw.Text(d)
	}
	_, err := io.WriteString(w, text)
	return err
}
