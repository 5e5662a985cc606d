// Package fleet runs the reporting and diagnosing code of thousands of agents, and two real
// controllers, against a real kube-apiserver and etcd on this machine, and measures what they write
// and cost: at the start, when idle, in storms, with a waiting Diagnosis of each node, during
// repairs, and when the controller or the API server is killed.
//
//	make fleet NODES=5000 REPORT=vmtest/fleet/results.md
//
// The kernel side of the agents is left out. Each agent has its own connection, watches, Lease,
// journal and state folder; the agents run in several processes.
package fleet

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

var (
	nodes      = flag.Int("nodes", 0, "how many agents to run, with controllers; 0: what make test-all does")
	phaseNames = flag.String("phases", "watches,start,idle,storm,open,wait,repair,failover,restart,stop", "what to run of that, in this order; unfair is a storm without a priority level")
	report     = flag.String("report", "", "page of the checkout into which the tables are written")
)

func TestMain(m *testing.M) {
	if os.Getenv(crewEnv) != "" {
		if err := runCrew(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "fleet:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// Agents start at once and are idle for a while; then a condition changes on all at the same
// moment, while a tenth reports a burst of problems, with a priority level and without. The API
// server is killed; the agents stop at once. Nothing may be lost, duplicated, or written without a
// change, and no controller may exceed the chart's memory limit. -nodes adds further phases.
func TestFleet(t *testing.T) {
	testenv.OnlyInTestAll(t)
	f, names := &fleet{TB: t, nodes: agents, idleFor: leaseEvery}, "start,idle,storm,unfair,restart,stop"
	if *nodes > 0 {
		f.nodes, f.diagnose, f.idleFor, names = max(*nodes, inBudget), true, time.Minute, *phaseNames
		f.rollout = max(10*time.Second, time.Duration(f.nodes)*20*time.Millisecond)
	}
	defer func() { fmt.Fprintf(t.Output(), "\n%s", f.markdown()) }() // also prints the measurements if the test fails
	f.run(parsePhases(t, names))
	if *report != "" && !t.Failed() {
		if err := writePage(filepath.Join(root, *report), f.markdown()); err != nil {
			t.Error(err)
		}
	}
	for _, text := range f.wrong {
		t.Error(text)
	}
}
