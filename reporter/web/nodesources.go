package web

import (
	"slices"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

const (
	// maxSources bounds the table of sources and the list of what an agent lacks.
	maxSources = 100
	maxLosses  = 100
)

// Source is a source of events.
type Source struct {
	Name string
	Up   bool
	Why  string // the reason why it misses events; empty if it does not
}

// Loss is what was lost since the agent started.
type Loss struct {
	What, Why string
	Count     uint64
}

func sourceSection(all []Source, lacks []string, losses []Loss) g.Node {
	faulty := slices.DeleteFunc(all, func(s Source) bool { return s.Up && s.Why == "" })
	state := text("No source is blind.")
	if len(faulty) > 0 {
		state = g.Group{number(len(faulty)), text(" of the sources are blind or have lost records; their faults may have gone undetected.")}
	}
	return section("sources", "Sources and losses", part("source-state",
		h.P(state, text(" "), number(len(all)-len(faulty)), text(" can detect all their faults.")),
		g.If(len(faulty) > 0, table(h.Caption(text("Blind or lossy sources")), columns("Source", "State", "Why"), each(first(faulty, maxSources), sourceRow))),
		g.If(len(lacks) > 0, g.Group{
			h.H3(text("What the agent lacks")),
			h.Ul(each(first(lacks, maxSources), func(line string) g.Node { return h.Li(text(line)) })),
		}),
		lossTable(losses),
	))
}

func sourceRow(s Source) g.Node {
	state := badge("bad", text("blind"))
	if s.Up {
		state = badge("warning", text("lossy"))
	}
	return h.Tr(rowHeader(text(name(s.Name))), h.Td(state), cell("text", text(s.Why)))
}

func lossTable(losses []Loss) g.Node {
	if len(losses) == 0 {
		return h.P(text("Nothing has been lost since the agent started."))
	}
	return table(h.Caption(text("Lost since the agent started")), g.Group{columns("What", "Why"), numberColumn("Count")},
		each(first(losses, maxLosses), func(l Loss) g.Node {
			return h.Tr(rowHeader(text(l.What)), cell("text", text(l.Why)), cell("number", h.Data("label", "Count"), number(l.Count)))
		}))
}
