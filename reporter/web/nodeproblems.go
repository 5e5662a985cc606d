package web

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/detector/problem"
)

// maxProblems bounds the table of problems.
const maxProblems = 500

// problemSection shows the firing problems: by severity, causes before the problems they explain,
// newest first; muted ones last.
func problemSection(list []problem.Problem) g.Node {
	firing := slices.DeleteFunc(list, func(p problem.Problem) bool { return p.State != problem.Firing })
	slices.SortStableFunc(firing, func(a, b problem.Problem) int {
		return cmp.Or(cmp.Compare(muted(&a), muted(&b)), cmp.Compare(b.Severity.Rank(), a.Severity.Rank()),
			cmp.Compare(explained(&a), explained(&b)), b.Since.Compare(a.Since))
	})
	shown := first(firing, maxProblems)
	return section("problems", "Problems",
		problemSummary(firing),
		table(hiddenCaption("Firing problems, most severe first"),
			g.Group{columns("Severity", "Problem", "Subject", "Message", "Since"), numberColumn("Count")},
			h.ID("problem-rows"), keyed(), h.Aria("live", "polite"), h.Aria("relevant", "additions"), each(shown, problemRow)),
		notShown(len(firing)-len(shown)),
	)
}

func muted(p *problem.Problem) int {
	if p.MutedUntil.IsZero() {
		return 0
	}
	return 1
}

func explained(p *problem.Problem) int { return min(1, len(p.SuppressedBy)) }

// problemSummary returns a line like "3 problems firing: 1 critical, 2 warning; 1 muted".
func problemSummary(firing []problem.Problem) g.Node {
	counts := map[string]int{}
	quiet := 0
	for i := range firing {
		if muted(&firing[i]) > 0 {
			quiet++
		} else {
			counts[severityWord(firing[i].Severity)]++
		}
	}
	var worst string
	var parts []string
	for _, s := range slices.Backward(problem.Severities()) {
		if n := counts[string(s)]; n > 0 {
			worst = cmp.Or(worst, string(s))
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	line := "No problems are firing"
	if len(parts) > 0 {
		line = display.Count(len(firing)-quiet, "problem") + " firing: " + strings.Join(parts, ", ")
	}
	if quiet > 0 {
		line += fmt.Sprintf("; %d muted", quiet)
	}
	return summary(worst, line)
}

func problemRow(p problem.Problem) g.Node {
	severity := severityWord(p.Severity)
	var notes []string
	if p.SuppressedBy != "" {
		notes = append(notes, "caused by "+p.SuppressedBy)
	}
	if !p.MutedUntil.IsZero() {
		notes = append(notes, "muted until "+p.MutedUntil.UTC().Format(time.DateTime))
	}
	return h.Tr(h.Data("key", key(p.Rule, p.Group)),
		h.Td(badge(severity, text(severity))),
		h.Td(problemLink(p.Doc, name(p.Reason)), sub(name(p.Rule))),
		cell("mono", text(p.Subject)),
		cell("text", text(p.Message), sub(strings.Join(notes, ", "))),
		labelled("Since", since(p.FirstSeen)),
		cell("number", h.Data("label", "Count"), number(p.Count)),
	)
}

// key returns an identifier that is valid in an attribute, whatever the parts contain.
func key(parts ...string) string {
	h := fnv.New128a()
	for _, part := range parts {
		_, _ = h.Write([]byte(part + "\x00")) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}
