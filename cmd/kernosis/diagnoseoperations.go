package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
)

func newDiagnoseOperations() *cobra.Command {
	return &cobra.Command{
		Use:   "operations [NAME]",
		Short: "List built-in operations, or describe one: parameters and results",
		Long: `List the built-in operations and what they may change, or describe one: its parameters and
results. See also docs/operations.md.

Exit code: 0; 2 there is no operation of that name.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all := catalog.All(operation.Host{})
			if len(args) == 0 {
				tw := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
				for i := range all {
					fmt.Fprintf(tw, "%s\t%s\t%s\n", all[i].Name, all[i].Effect, firstSentence(all[i].Doc))
				}
				return failed(tw.Flush())
			}
			b, ok := operation.Lookup(all, args[0])
			if !ok {
				var names []string
				for i := range all {
					names = append(names, all[i].Name)
				}
				return fmt.Errorf("operations: no built-in is named %.80q%s", args[0], document.Suggest(args[0], names))
			}
			return failed(describe(cmd.OutOrStdout(), b))
		},
	}
}

// firstSentence is a doc that fits a list.
func firstSentence(doc string) string {
	for _, end := range []string{". ", ": ", ", with verdict"} {
		doc, _, _ = strings.Cut(doc, end)
	}
	return strings.TrimSuffix(doc, ".")
}

func describe(w io.Writer, b *operation.Builtin) error {
	safe := ""
	if b.TenantSafe {
		safe = ", safe for tenants"
	}
	fmt.Fprintf(w, "%s (%s%s)\n%s\n", b.Name, b.Effect, safe, b.Doc)
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	if len(b.Parameters) > 0 {
		fmt.Fprintln(tw, "\nparameters")
	}
	for i := range b.Parameters {
		p := &b.Parameters[i]
		fmt.Fprintf(tw, "  %s\t%s\t%s\n", p.Name, p.Form(), p.Doc)
	}
	if len(b.Results) > 0 {
		fmt.Fprintln(tw, "\nresults")
	}
	for _, r := range b.Results {
		fmt.Fprintf(tw, "  %s\t%s\n", r.Name, r.Doc)
	}
	return tw.Flush()
}
