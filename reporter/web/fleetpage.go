package web

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/detector/problem"
)

const (
	// maxNodes bounds the table of nodes.
	maxNodes = 1000
	// maxNodeConditions bounds the conditions shown per node.
	maxNodeConditions = 10
	// fleetBeat is how often clients fetch the state, because the controller does not signal changes.
	fleetBeat = 2 * time.Second
)

// AgentState describes whether the agent of a node reports.
type AgentState string

// States of agents, worst first.
const (
	AgentSilent    AgentState = "silent"   // it has stopped renewing its Lease
	AgentMissing   AgentState = "none"     // the node has never had an agent, or it was removed
	AgentDraining  AgentState = "draining" // it has shut down cleanly
	AgentDegraded  AgentState = "degraded" // some rights or sources are missing
	AgentReporting AgentState = "reporting"
)

// FleetPageConfig configures the page of a cluster.
type FleetPageConfig struct {
	Version string
	// Ended is closed when the controller stops, which ends all streams.
	Ended <-chan struct{}
	// Nodes returns all nodes. It is called at most once a second, and only while the page is
	// open somewhere.
	Nodes func() (Fleet, error)
}

// Fleet is the state of all nodes.
type Fleet struct {
	Nodes []FleetNode
	Note  string // what this replica cannot report
}

// FleetNode is a node of the cluster, according to the API server.
type FleetNode struct {
	Name     string
	Ready    bool
	Cordoned bool
	Agent    AgentState
	Version  string   // of the agent
	Lacks    []string // what the agent lacks while it is degraded
	// Conditions are the ones the agent reports.
	Conditions []problem.Condition
	Running    int // Diagnoses that have not completed
	Waiting    int // Diagnoses with a repair that is waiting for approval
	// Cause is the reason of the latest verdict, or empty. Diagnosis is the name of its Diagnosis.
	Cause, Diagnosis string
	CauseAt          time.Time
}

// NewFleetPage returns the page of a cluster's nodes. It does not read anything yet.
func NewFleetPage(cfg FleetPageConfig) *Page {
	p := &Page{
		frame:   frame{title: "Nodes", sections: []link{{"nodes", "Nodes"}}, command: "kubectl kernosis why node NODE"},
		content: cfg.content, ended: cfg.Ended, beat: fleetBeat,
	}
	return p.init()
}

// content reads the nodes and returns their view.
func (cfg *FleetPageConfig) content() g.Node {
	fleet, err := cfg.Nodes()
	return h.Main(h.ID("state"),
		h.Header(
			h.H1(text("Nodes")),
			fleetFacts(cfg.Version, fleet.Nodes),
			part("broken", h.Role("alert"), failure("The cluster can't be read", err)),
			part("note", g.If(fleet.Note != "", note(text(fleet.Note)))),
		),
		fleetSection(fleet.Nodes, err),
	)
}

func fleetFacts(version string, nodes []FleetNode) g.Node {
	reporting, running, waiting := 0, 0, 0
	for i := range nodes {
		n := &nodes[i]
		if n.Agent == AgentReporting || n.Agent == AgentDegraded {
			reporting++
		}
		running += n.Running
		waiting += n.Waiting
	}
	return facts(
		fact("Controller version", text(version)),
		fact("Nodes", number(len(nodes))),
		fact("Reporting agents", number(reporting)),
		fact("Running Diagnoses", number(running)),
		fact("Repairs awaiting approval", number(waiting)),
	)
}

func fleetSection(nodes []FleetNode, err error) g.Node {
	rows := make([]fleetRow, 0, len(nodes))
	for i := range nodes {
		rows = append(rows, rowOfNode(&nodes[i]))
	}
	slices.SortStableFunc(rows, func(a, b fleetRow) int {
		return cmp.Or(cmp.Compare(b.severity, a.severity), b.since.Compare(a.since), strings.Compare(a.Name, b.Name))
	})
	shown := first(rows, maxNodes)
	return section("nodes", "Nodes",
		fleetSummary(rows, err),
		filters("Nodes", "node-rows", "nodes", "Show", level("0", "all"), level("2", "with something wrong or unknown"), level("3", "with a condition that is True")),
		table(hiddenCaption("Nodes, most serious state first"), columns("Node", "Agent", "Conditions", "Since", "Diagnoses", "Latest cause"),
			h.ID("node-rows"), keyed(), each(shown, fleetRow.node)),
		empty("No nodes."),
		notShown(len(rows)-len(shown)),
	)
}

func fleetSummary(rows []fleetRow, err error) g.Node {
	firing, unclear := 0, 0
	for i := range rows {
		switch rows[i].severity {
		case 3:
			firing++
		case 2:
			unclear++
		}
	}
	switch {
	case err != nil:
		return summary("warning", "The state of the nodes is unknown.")
	case firing > 0:
		return summary("critical", fmt.Sprintf("%s with a condition that is True, %d with something unknown.", display.Count(firing, "node"), unclear))
	case unclear > 0:
		return summary("warning", display.Count(unclear, "node")+" with something unknown.")
	default:
		return summary("", "All conditions of all nodes are False.")
	}
}

// fleetRow is a node and how serious its state is.
type fleetRow struct {
	*FleetNode
	severity   int                 // 3: a condition is True; 2: something else is wrong or unknown; 0: neither
	conditions []problem.Condition // the first ones that are True or Unknown, True ones first
	since      time.Time           // of the latest True or Unknown condition
}

func rowOfNode(n *FleetNode) fleetRow {
	r := fleetRow{FleetNode: n}
	if n.Agent != AgentReporting {
		r.severity = 2
	}
	for _, status := range []problem.Status{problem.True, problem.Unknown} {
		for i := range n.Conditions {
			c := &n.Conditions[i]
			if c.Status != status {
				continue
			}
			r.severity = max(r.severity, 2)
			if status == problem.True {
				r.severity = 3
			}
			if c.LastTransition.After(r.since) {
				r.since = c.LastTransition
			}
			if len(r.conditions) < maxNodeConditions {
				r.conditions = append(r.conditions, *c)
			}
		}
	}
	return r
}

func (r fleetRow) node() g.Node {
	return h.Tr(h.Data("key", name(r.Name)), h.Data("severity", strconv.Itoa(r.severity)),
		rowHeader(text(name(r.Name)), g.If(!r.Ready, sub("not Ready")), g.If(r.Cordoned, sub("cordoned"))),
		r.agent(),
		h.Td(each(r.conditions, func(c problem.Condition) g.Node {
			return g.Group{badge(conditionClass(c.Status), problemLink(c.Type, name(c.Type)), text(" "+string(c.Status))), text(" "), sub(name(c.Reason))}
		})),
		labelled("Since", since(r.since)),
		h.Td(
			g.If(r.Running > 0, sub(fmt.Sprintf("%d running", r.Running))),
			g.If(r.Waiting > 0, sub(fmt.Sprintf("%d waiting for approval", r.Waiting))),
		),
		h.Td(g.If(r.Cause != "", g.Group{text(name(r.Cause)), sub(name(r.Diagnosis)), since(r.CauseAt)})),
	)
}

func (r fleetRow) agent() g.Node {
	class := "unknown"
	var lacks []string
	switch r.Agent {
	case AgentReporting:
		class = "good"
	case AgentDegraded:
		class, lacks = "warning", first(r.Lacks, maxSources)
	}
	return h.Td(badge(class, text(string(r.Agent))), sub(name(r.Version)), each(lacks, sub))
}
