package web

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kernosis/kernosis/detector/problem"
)

// everyNode returns a cluster in which all texts are hostile.
func everyNode() FleetPageConfig {
	return FleetPageConfig{Version: hostile, Nodes: func() (Fleet, error) {
		return Fleet{Note: hostile, Nodes: []FleetNode{{
			Name: hostile, Agent: AgentDegraded, Version: hostile, Lacks: []string{hostile}, Running: 1, Waiting: 1,
			Conditions: []problem.Condition{
				{Type: hostile, Status: problem.True, Reason: hostile}, {Type: "../x", Status: problem.Unknown, Reason: hostile},
			},
			Cause: hostile, Diagnosis: hostile, CauseAt: time.Now(),
		}}}, nil
	}}
}

// fleetOf returns n nodes: the first has a condition that is True, the second a silent agent.
func fleetOf(n int) []FleetNode {
	nodes := make([]FleetNode, n)
	for i := range nodes {
		nodes[i] = FleetNode{
			Name: fmt.Sprintf("node-%04d", n-i), Ready: true, Agent: AgentReporting, Version: "0.1.0",
			Conditions: []problem.Condition{{Type: "KernelDeadlock", Status: problem.False, Reason: "KernelHasNoDeadlock", LastTransition: time.Unix(1e9, 0)}},
		}
	}
	nodes[0].Conditions[0].Status, nodes[0].Conditions[0].Reason = problem.True, "TaskHung"
	nodes[0].Running, nodes[0].Waiting, nodes[0].Cordoned = 2, 1, true
	nodes[0].Cause, nodes[0].Diagnosis, nodes[0].CauseAt = "LockHolderBlocked", "hung-1", time.Now()
	nodes[1].Agent, nodes[1].Ready = AgentSilent, false
	nodes[1].Conditions[0].Status = problem.Unknown
	return nodes
}

// Of 5,000 nodes, those with problems come first, and those not shown are counted.
func TestManyNodes(t *testing.T) {
	nodes := fleetOf(5000)
	shown := body(t, NewFleetPage(FleetPageConfig{Nodes: func() (Fleet, error) { return Fleet{Nodes: nodes}, nil }}), "/state")
	if rows := strings.Count(shown, "<tr data-key="); rows != maxNodes {
		t.Errorf("%d rows, want %d", rows, maxNodes)
	}
	for _, want := range []string{
		"1 node with a condition that is True, 1 with something unknown.", "<dd>4999</dd>", "4000 more are not shown", "2 running", "1 waiting for approval",
		`<a href="problems/KernelDeadlock">KernelDeadlock</a> True`, "TaskHung", "LockHolderBlocked", "cordoned", "not Ready", `<span class="badge unknown">silent</span>`,
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not shown", want)
		}
	}
	if first := regexp.MustCompile(`key="node-\d+`).FindAllString(shown, 3); fmt.Sprint(first) != `[key="node-5000 key="node-4999 key="node-0001]` {
		t.Errorf("first are %v", first)
	}
	if len(shown) > 600<<10 {
		t.Errorf("%d bytes", len(shown))
	}
}

// If the nodes can't be read, the page shows the error, not that all is well.
func TestFleetUnread(t *testing.T) {
	shown := body(t, NewFleetPage(FleetPageConfig{Nodes: func() (Fleet, error) { return Fleet{}, errors.New("list nodes: timeout") }}), "/state")
	if !strings.Contains(shown, "list nodes: timeout") || !strings.Contains(shown, "The state of the nodes is unknown.") || strings.Contains(shown, "are False") {
		t.Error(shown)
	}
}

// The table of nodes follows the cluster, can be filtered, and fits on a phone.
func TestFleetLive(t *testing.T) {
	b := openBrowser(t)
	var now atomic.Pointer[Fleet]
	now.Store(&Fleet{Nodes: fleetOf(30)})
	_, at, _ := servePage(t, "127.0.0.1:0", func(ended <-chan struct{}) *Page {
		return NewFleetPage(FleetPageConfig{Ended: ended, Nodes: func() (Fleet, error) { return *now.Load(), nil }})
	})
	for _, width := range []int{360, 768, 1200} {
		b.show("http://"+at+"/", width)
		if wide := b.eval(tooWide); wide != "" {
			t.Errorf("at %d pixels too wide: %s", width, wide)
		}
	}
	const visible = `document.querySelectorAll("#node-rows > tr:not([hidden])").length`
	b.until(visible, "30")
	b.eval(`severity.value = "2"; severity.dispatchEvent(new Event("change"))`)
	b.until(visible, "2")
	b.until("shown.textContent", "2 of 30 nodes")
	next := fleetOf(30)
	next[7].Conditions[0].Status = problem.True
	now.Store(&Fleet{Nodes: next})
	b.until(visible, "3")
	b.until(`document.getElementById("summary").textContent`, "2 nodes with a condition that is True, 1 with something unknown.")
	b.eval(`filter.value = "silent"; filter.dispatchEvent(new Event("input"))`)
	b.until(visible, "1")
}
