package web

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/docs/problems"
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
		frame: frame{
			Title: "Nodes", Sections: []section{{"nodes", "Nodes"}}, Command: "kubectl kernosis why node NODE", template: "fleet.html",
		},
		view: cfg.view, ended: cfg.Ended, beat: fleetBeat,
	}
	return p.init()
}

// fleetView is the data of the template. All texts are safe.
type fleetView struct {
	Version, Error, Note               string
	Nodes, Reporting, Running, Waiting int
	Summary, Worst                     string
	Rows                               []fleetRow
	More                               int
}

type fleetRow struct {
	Name             string
	Notes            []string
	Severity         int // 3: a condition is True; 2: something else is wrong or unknown; 0: neither
	Agent, AgentWord string
	Version          string
	Lacks            []string
	Conditions       []fleetCondition // those that are True or Unknown
	Since            moment           // of the latest of these conditions
	Diagnoses        []string
	Cause, CauseOf   string
	CauseAt          moment
}

type fleetCondition struct{ Type, Status, Word, Reason, Page string }

func (cfg *FleetPageConfig) view() any {
	v := &fleetView{Version: safe(cfg.Version)}
	all, err := cfg.Nodes()
	if err != nil {
		v.Error, v.Worst, v.Summary = safe(err.Error()), "warning", "The state of the nodes is unknown."
		return v
	}
	nodes := all.Nodes
	v.Nodes, v.Note = len(nodes), safe(all.Note)
	firing, unclear := 0, 0
	rows := make([]fleetRow, 0, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		if n.Agent == AgentReporting || n.Agent == AgentDegraded {
			v.Reporting++
		}
		v.Running += n.Running
		v.Waiting += n.Waiting
		row := rowOfNode(n)
		switch row.Severity {
		case 3:
			firing++
		case 2:
			unclear++
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b fleetRow) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), b.Since.Compare(a.Since.Time), strings.Compare(a.Name, b.Name))
	})
	v.Rows = rows[:min(len(rows), maxNodes)]
	v.More = len(rows) - len(v.Rows)
	switch {
	case firing > 0:
		v.Worst = "critical"
		v.Summary = fmt.Sprintf("%s with a condition that is True, %d with something unknown.", display.Count(firing, "node"), unclear)
	case unclear > 0:
		v.Worst, v.Summary = "warning", display.Count(unclear, "node")+" with something unknown."
	default:
		v.Summary = "All conditions of all nodes are False."
	}
	return v
}

func rowOfNode(n *FleetNode) fleetRow {
	row := fleetRow{Name: name(n.Name), Agent: string(n.Agent), Version: name(n.Version), Cause: name(n.Cause), CauseOf: name(n.Diagnosis), CauseAt: moment{n.CauseAt}}
	if !n.Ready {
		row.Notes = append(row.Notes, "not Ready")
	}
	if n.Cordoned {
		row.Notes = append(row.Notes, "cordoned")
	}
	switch n.Agent {
	case AgentReporting:
		row.AgentWord = "good"
	case AgentDegraded:
		row.AgentWord, row.Severity = "warning", 2
		row.Lacks = allSafe(n.Lacks)
	default:
		row.AgentWord, row.Severity = "unknown", 2
	}
	row.conditions(n.Conditions)
	if n.Running > 0 {
		row.Diagnoses = append(row.Diagnoses, fmt.Sprintf("%d running", n.Running))
	}
	if n.Waiting > 0 {
		row.Diagnoses = append(row.Diagnoses, fmt.Sprintf("%d waiting for approval", n.Waiting))
	}
	return row
}

// conditions sets the conditions that are not False, True ones first.
func (r *fleetRow) conditions(list []problem.Condition) {
	for _, status := range []problem.Status{problem.True, problem.Unknown} {
		for i := range list {
			c := &list[i]
			if c.Status != status {
				continue
			}
			severity, word := 2, "unknown"
			if status == problem.True {
				severity, word = 3, "bad"
			}
			r.Severity = max(r.Severity, severity)
			if c.LastTransition.After(r.Since.Time) {
				r.Since = moment{c.LastTransition}
			}
			if len(r.Conditions) == maxNodeConditions {
				continue
			}
			of := fleetCondition{Type: name(c.Type), Status: string(status), Word: word, Reason: name(c.Reason)}
			if _, ok := problems.Text(c.Type); ok {
				of.Page = c.Type
			}
			r.Conditions = append(r.Conditions, of)
		}
	}
}
