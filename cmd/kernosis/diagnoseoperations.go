package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
)

func newDiagnoseOperations() *cobra.Command {
	var format *output.Format
	cmd := &cobra.Command{
		Use:   "operations [NAME]",
		Short: "List built-in operations, or describe one: parameters and results",
		Long: `List the built-in operations and what they may change, or describe one: its parameters and
results. See also docs/operations.md.

Exit code: 0; 2 there is no such operation.`,
		Example: `  kernosis diagnose operations
  kernosis diagnose operations check-disk-stalled`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeFirst(operationNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			all := catalog.All(operation.Host{})
			w := cmd.OutOrStdout()
			if len(args) == 0 {
				return output.Failed(format.Write(w, describeAll(all), func() error { return listOperations(w, all, format.Is(output.Wide)) }))
			}
			b, ok := operation.Lookup(all, args[0])
			if !ok {
				return fmt.Errorf("operations: unknown built-in operation %.80q%s", args[0], document.Suggest(args[0], operationNames()))
			}
			return output.Failed(format.Write(w, documentOf(b), func() error { return describe(w, b) }))
		},
	}
	format = output.Add(cmd)
	return cmd
}

func operationNames() []string {
	all := catalog.All(operation.Host{})
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names
}

// listOperations writes a table; whole: with their full docs.
func listOperations(w io.Writer, all []operation.Builtin, whole bool) error {
	rows := &output.Rows{}
	for i := range all {
		doc := firstSentence(all[i].Doc)
		if whole {
			doc = strings.ReplaceAll(all[i].Doc, "\n", " ")
		}
		rows.Add(all[i].Name, string(all[i].Effect), doc)
	}
	return rows.Write(w)
}

type operationDocument struct {
	Name         string              `json:"name"`
	Effect       operation.Effect    `json:"effect"`
	TenantSafe   bool                `json:"tenantSafe,omitempty"`
	ByController bool                `json:"byController,omitempty"`
	Doc          string              `json:"doc"`
	Parameters   []parameterDocument `json:"parameters,omitempty"`
	Results      []operation.Result  `json:"results,omitempty"`
}

type parameterDocument struct {
	Name     string         `json:"name"`
	Kind     operation.Kind `json:"kind"`
	Required bool           `json:"required,omitempty"`
	Default  string         `json:"default,omitempty"`
	Form     string         `json:"form"` // type, bounds and default in words
	Doc      string         `json:"doc"`
}

func describeAll(all []operation.Builtin) []*operationDocument {
	list := make([]*operationDocument, len(all))
	for i := range all {
		list[i] = documentOf(&all[i])
	}
	return list
}

func documentOf(b *operation.Builtin) *operationDocument {
	d := &operationDocument{Name: b.Name, Effect: b.Effect, TenantSafe: b.TenantSafe, ByController: b.ByController, Doc: b.Doc, Results: b.Results}
	for i := range b.Parameters {
		p := &b.Parameters[i]
		d.Parameters = append(d.Parameters, parameterDocument{p.Name, p.Kind, p.Required, p.Default, p.Form(), p.Doc})
	}
	return d
}

// firstSentence returns the first sentence of a doc, which fits a list.
func firstSentence(doc string) string {
	for _, end := range []string{". ", ": "} {
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
	if len(b.Parameters) > 0 {
		rows := &output.Rows{}
		for i := range b.Parameters {
			p := &b.Parameters[i]
			rows.Add("  "+p.Name, p.Form(), p.Doc)
		}
		fmt.Fprint(w, "\nparameters\n", rows)
	}
	if len(b.Results) == 0 {
		return nil
	}
	rows := &output.Rows{}
	for _, r := range b.Results {
		rows.Add("  "+r.Name, r.Doc)
	}
	fmt.Fprintln(w, "\nresults")
	return rows.Write(w)
}
