package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// A filesystem that runs out of inodes is reported, and resolved when files are deleted. Gauges read
// in between are not journaled.
func TestInodesRunOut(t *testing.T) {
	testenv.OnlyInTestAll(t) // two beats of 30 s
	t.Parallel()
	needKernel(t) // before the disk is attached, and until it is detached
	disk := disklab.NewExt4(t, 16<<20, "-N", "256")
	device := disk.Name
	rules := t.TempDir()
	// As shipped, without the five minutes.
	if err := os.WriteFile(filepath.Join(rules, "soon.yaml"), []byte(`apiVersion: rules.kernosis.io/v1
rules:
- name: inodes-nearly-exhausted
  events: [gauge]
  when: gauge.name == "inodes" && gauge.percent >= 98
  clearWhen: gauge.percent < 95
  groupBy: [device.name]
  condition: ResourceShortage
  reason: InodesNearlyExhausted
  message: ${gauge.value} of ${gauge.limit} inodes of ${subject} are in use
  for: 1s
`), 0o644); err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, "--rules-dir", rules)
	a.Start()
	gauges := func(entries []journal.Entry) []*event.Event {
		return slices.DeleteFunc(agenttest.Events(entries, event.Gauge), func(ev *event.Event) bool {
			return ev.Device == nil || ev.Device.Name != device
		})
	}
	states := func(entries []journal.Entry) []problem.State {
		return agenttest.States(entries, "inodes-nearly-exhausted", func(p *problem.Problem) bool { return p.Group == device })
	}
	a.Wait("gauge/inodes up", 20*time.Second, func(entries []journal.Entry) bool {
		return slices.ContainsFunc(agenttest.Events(entries, event.Source), func(ev *event.Event) bool {
			return ev.SourceUp.Stem == "gauge/inodes" && ev.SourceUp.Up
		})
	})
	if early := gauges(a.Entries()); len(early) != 0 {
		t.Errorf("%d readings of a filesystem with free inodes are in the journal", len(early))
	}
	files := 0
	for ; ; files++ {
		if err := os.WriteFile(filepath.Join(disk.Dir, fmt.Sprint("f", files)), nil, 0o644); err != nil {
			break // no inodes left
		}
	}
	entries := a.Wait("firing", 45*time.Second, func(entries []journal.Entry) bool {
		return slices.Equal(states(entries), []problem.State{problem.Firing})
	})
	for _, e := range entries {
		for _, tr := range e.Transitions {
			if tr.Problem != nil && tr.Problem.Group == device {
				t.Log(tr.Problem.Message)
			}
		}
	}
	for i := range files / 2 {
		if err := os.Remove(filepath.Join(disk.Dir, fmt.Sprint("f", i))); err != nil {
			t.Fatal(err)
		}
	}
	entries = a.Wait("resolved", 45*time.Second, func(entries []journal.Entry) bool {
		return slices.Equal(states(entries), []problem.State{problem.Firing, problem.Resolved})
	})
	if reported := gauges(entries); len(reported) != 2 {
		t.Errorf("%d readings are in the journal, want 2: the one over the threshold and the one under it", len(reported))
	}
}
