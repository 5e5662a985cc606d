package web

import (
	"cmp"
	"slices"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/kernosis/kernosis/detector/problem"
)

// maxConditions bounds the table of conditions.
const maxConditions = 200

// conditionSection shows True conditions first, False ones last.
func conditionSection(list []problem.Condition) g.Node {
	order := []string{"bad", "unknown", "good"}
	slices.SortStableFunc(list, func(a, b problem.Condition) int {
		return cmp.Compare(slices.Index(order, conditionClass(a.Status)), slices.Index(order, conditionClass(b.Status)))
	})
	return section("conditions", "Conditions",
		table(hiddenCaption("Conditions of the node"), columns("Condition", "Status", "Reason", "Message", "Since"),
			h.ID("condition-rows"), keyed(), each(first(list, maxConditions), conditionRow)),
		empty("No rule sets a condition."),
	)
}

func conditionRow(c problem.Condition) g.Node {
	return h.Tr(h.Data("key", name(c.Type)),
		rowHeader(text(name(c.Type))),
		h.Td(badge(conditionClass(c.Status), text(name(string(c.Status))))),
		h.Td(text(name(c.Reason))),
		cell("text", text(c.Message)),
		labelled("Since", since(c.LastTransition)),
	)
}

// conditionClass returns the class of a condition's badge.
func conditionClass(s problem.Status) string {
	switch s {
	case problem.True:
		return "bad"
	case problem.False:
		return "good"
	default:
		return "unknown"
	}
}
