package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

func newRulesList() *cobra.Command {
	var format *output.Format
	cmd := &cobra.Command{
		Use:   "list [FILE|DIR]",
		Short: "List the shipped rules together with those of a file or folder",
		Long: `List the shipped rules together with those of a file or folder: what each reports, as an
Event or a condition, and its file. A rule of the folder replaces the shipped rule of the
same name.

Exit code: 0; 2 a file has a mistake.`,
		Example: `  kernosis rules list
  kernosis rules list /etc/kernosis/rules -o wide
  kernosis rules list -o json | jq -r '.[] | select(.severity == "critical").name'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := checkedRules(firstOf(args))
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			return output.Failed(format.Write(w, listedRules(set), func() error { return tabulateRules(w, set, format.Is(output.Wide)) }))
		},
	}
	format = output.Add(cmd)
	return cmd
}

// listedRule is a rule as JSON or YAML.
type listedRule struct {
	Name      string           `json:"name"`
	Fault     string           `json:"fault"`
	Severity  problem.Severity `json:"severity"`
	Condition string           `json:"condition,omitempty"` // empty: it is reported as an Event
	Reason    string           `json:"reason"`
	Events    []event.Kind     `json:"events"`
	Message   string           `json:"message"`
	Doc       string           `json:"doc,omitempty"`
	File      string           `json:"file"`
	Line      int              `json:"line"`
	Shipped   bool             `json:"shipped"`
}

func listedRules(set *detector.RuleSet) []listedRule {
	list := []listedRule{}
	for _, r := range set.Rules() {
		list = append(list, listedRule{r.Name, r.Fault, r.Severity, r.Condition, r.Reason, r.Events, r.Message, r.Doc, r.File, r.Line, r.Layer == 0})
	}
	return list
}

// tabulateRules writes a table; all: also each rule's events and doc page.
func tabulateRules(w io.Writer, set *detector.RuleSet, all bool) error {
	rows := &output.Rows{}
	head := []string{"RULE", "SEVERITY", "REPORTED AS", "REASON", "FROM"}
	if all {
		head = append(head, "EVENTS", "DOC")
	}
	rows.Add(head...)
	for _, r := range set.Rules() {
		as, from := "Event", "shipped"
		if r.Condition != "" {
			as = r.Condition
		}
		if r.Layer > 0 {
			from = fmt.Sprintf("%s:%d", r.File, r.Line)
		}
		row := []string{r.Name, string(r.Severity), as, r.Reason, from}
		if all {
			var events []string
			for _, k := range r.Events {
				events = append(events, string(k))
			}
			row = append(row, strings.Join(events, ","), r.Doc)
		}
		rows.Add(row...)
	}
	return rows.Write(w)
}
