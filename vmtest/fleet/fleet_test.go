package main

import (
	"os"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testall"
)

func TestMain(m *testing.M) {
	if os.Getenv(crewEnv) != "" {
		exit(runCrew(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// Agents start at once; nothing happens; then a condition changes on all at the same moment,
// while a tenth sees a burst of problems, with a priority level and without. The API server is
// killed; they end at once. Nothing is lost, doubled, or written without a change.
func TestFleet(t *testing.T) {
	testall.Only(t)
	f := newFleet(t, options{
		Nodes: agents, Idle: leaseEvery, Root: "../..", Out: t.Output(),
		Phases: []string{"start", "idle", "storm", "unfair", "restart", "stop"},
	})
	f.run()
	for _, text := range f.wrong {
		t.Error(text)
	}
}
